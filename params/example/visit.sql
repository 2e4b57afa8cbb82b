-- A customer visits: the balance moves, the visit is noted, and the sum of the customer's orders is asked for.
\set customer random(1, 250)
\set amount random(1, 100)
begin;
update customers set balance = balance + :amount where id = :customer;
insert into visits (customer, amount) values (:customer, :amount);
select sum(amount) from orders where customer = :customer;
commit;
