-- The same start for every run: new tables, read into memory, with or without the index on orders (customer).
\set ON_ERROR_STOP 1
set client_min_messages = warning;
drop table if exists customers, orders, visits;
create table customers (id int primary key, address char(200) not null default '', balance int not null default 0)
  with (fillfactor = 50);
create table orders (id int primary key, customer int not null, amount int not null);
create table visits (customer int not null, amount int not null);
insert into customers (id) select generate_series(1, 250);
insert into orders select i, 1 + (i * 7919) % 250, i % 100 from generate_series(1, 5000) as i;
select :'index' = 'present' as wanted \gset
\if :wanted
create index orders_customer on orders (customer);
\endif
vacuum analyze customers;
vacuum analyze orders;
checkpoint;
\o /dev/null
select count(*) from customers;
select count(*) from orders;
select pg_stat_statements_reset();
