#!/usr/bin/env bash
# make example: a comparison that is recorded on this machine, of one database with and without an index.
#
# A PostgreSQL of its own, a Prometheus and its two exporters are started in a temporary folder, on a socket in there and on
# free ports of the loopback interface; `run` makes the runs and pulls each from the Prometheus, `report` publishes the
# report. All of it is stopped and removed in the end; the runs stay in data/experiments/example.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${1:-python3} repeats=6 seconds=60 out=$root/data/experiments/example report=$root/reports/example
[ $# -eq 0 ] || shift
while [ $# -gt 0 ]; do
  case "$1=${2:-}" in
    --repeats=[1-9]*) repeats=$2 ;;
    --seconds=[1-9]*) seconds=$2 ;;
    --output=?*) out=$2 ;;
    --report=?*) report=$2 ;;
    *)
      echo "make example: expected ARGS=\"--repeats RUNS --seconds SECONDS --output FOLDER --report FOLDER\", found $1 ${2:-}" >&2
      exit 3
      ;;
  esac
  shift 2
done
if ! [ "$repeats" -ge 1 ] 2>/dev/null || ! [ "$seconds" -ge 32 ] 2>/dev/null; then
  echo "make example: expected at least 1 repeat and 32 seconds, found $repeats and $seconds" >&2
  exit 3
fi

# ---- What is needed -----------------------------------------------------------------------------------------------------

# Debian keeps PostgreSQL's programs where no PATH looks; others have them on it.
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1 || true)
PATH="${bin:+$bin:}$PATH:/usr/sbin" # runuser, which `su` leaves out
POSTGRES_EXPORTER=$(command -v prometheus-postgres-exporter || command -v postgres_exporter || true) # Debian's name, their own
NODE_EXPORTER=$(command -v prometheus-node-exporter || command -v node_exporter || true)
export POSTGRES_EXPORTER NODE_EXPORTER
missing=()
for program in initdb:postgresql pg_ctl:postgresql pgbench:postgresql psql:postgresql-client prometheus:prometheus; do
  command -v "${program%%:*}" >/dev/null || missing+=("$program")
done
[ -n "$POSTGRES_EXPORTER" ] || missing+=(postgres_exporter:prometheus-postgres-exporter)
[ -n "$NODE_EXPORTER" ] || missing+=(node_exporter:prometheus-node-exporter)
if [ "${#missing[@]}" -gt 0 ]; then
  echo "make example: expected on the PATH the programs ${missing[*]%%:*}, found none of them." >&2
  echo "Debian, Ubuntu: sudo apt-get install $(printf '%s\n' "${missing[@]##*:}" | sort -u | tr '\n' ' ')" >&2
  echo "(the servers that these packages start are not used: sudo systemctl disable --now postgresql prometheus" >&2
  echo "prometheus-node-exporter prometheus-postgres-exporter)" >&2
  exit 3
fi
as=()
if [ "$(id -u)" -eq 0 ]; then # PostgreSQL refuses to be run by root
  id postgres >/dev/null 2>&1 || { echo "make example: expected a user other than root, found root" >&2; exit 3; }
  as=(runuser -u postgres --)
fi

# ---- The servers, until this script ends --------------------------------------------------------------------------------

tmp=$(mktemp -d "${TMPDIR:-/tmp}/example.XXXXXX")
servers=()
stop() {
  trap '' INT TERM
  [ "${#servers[@]}" -eq 0 ] || kill "${servers[@]}" 2>/dev/null || true
  [ ! -e "$tmp/database/data/postmaster.pid" ] ||
    (cd "$tmp/database" && "${as[@]}" pg_ctl -D data -m immediate -s stop) || true
  wait
  rm -rf "$tmp"
}
trap stop EXIT
trap 'exit 130' INT TERM

mkdir -m 700 "$tmp/database"
[ "${#as[@]}" -eq 0 ] || { chmod 711 "$tmp" && chown postgres "$tmp/database"; }
cat >"$tmp/postgresql.conf" <<CONF
listen_addresses = ''
unix_socket_directories = '$tmp/database'
shared_preload_libraries = 'pg_stat_statements'
pg_stat_statements.track_utility = off
fsync = off
autovacuum = off
checkpoint_timeout = '1d'
max_wal_size = '10GB'
max_parallel_workers_per_gather = 0
CONF
(
  cd "$tmp/database"
  "${as[@]}" initdb -D data -A trust -U example --no-sync --no-locale -E UTF8 >initdb.log
  cat "$tmp/postgresql.conf" >>data/postgresql.conf
  "${as[@]}" pg_ctl -D data -l server.log -w -s start || { tail -n 5 server.log >&2; exit 4; }
)
export PGHOST=$tmp/database PGUSER=example PGDATABASE=shop
unset PGPORT PGPASSWORD PGSERVICE PGOPTIONS
psql -q -d postgres -c 'create database shop'
psql -q -d postgres -c 'create extension pg_stat_statements'
psql -q -c 'create extension pg_stat_statements'

ports=$("$python" -c 'import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(each.getsockname()[1] for each in held))')
read -r of_prometheus of_postgres of_node <<<"$ports"
DATA_SOURCE_NAME="host=$PGHOST user=example dbname=postgres sslmode=disable" "$POSTGRES_EXPORTER" \
  --web.listen-address="127.0.0.1:$of_postgres" --extend.query-path="$here/statements.yaml" \
  --disable-settings-metrics --log.level=error 2>"$tmp/postgres-exporter.log" &
servers+=($!)
"$NODE_EXPORTER" --web.listen-address="127.0.0.1:$of_node" --collector.disable-defaults \
  --collector.cpu --collector.meminfo 2>"$tmp/node-exporter.log" &
servers+=($!)
cat >"$tmp/prometheus.yml" <<CONF
global: {scrape_interval: 1s}
scrape_configs:
  - {job_name: postgres, static_configs: [{targets: ["127.0.0.1:$of_postgres"]}]}
  - {job_name: node, static_configs: [{targets: ["127.0.0.1:$of_node"]}]}
CONF
prometheus --config.file="$tmp/prometheus.yml" --storage.tsdb.path="$tmp/prometheus" --log.level=error \
  --web.listen-address="127.0.0.1:$of_prometheus" 2>"$tmp/prometheus.log" &
servers+=($!)
up='import json, sys, time, urllib.request
until = time.monotonic() + 30
while time.monotonic() < until:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/api/v1/query?query=sum(up)", timeout=5) as answer:
            if [each["value"][1] for each in json.load(answer)["data"]["result"]] == ["2"]:
                sys.exit()
    except OSError:
        pass
    time.sleep(0.2)
sys.exit(1)'
if ! "$python" -c "$up" "$of_prometheus"; then
  echo "make example: expected a Prometheus that scrapes both exporters within 30 s, found none:" >&2
  tail -n 3 "$tmp"/*.log >&2
  exit 4
fi

# ---- The experiment and its report --------------------------------------------------------------------------------------

rm -rf "$out"
sed -e "s|http://127.0.0.1:9090|http://127.0.0.1:$of_prometheus|" -e "s|^repeats: .*|repeats: $repeats|" \
  -e "s|--time=60|--time=$seconds|" -e "s|, 60 s\$|, $seconds s|" "$here/matrix.yaml" >"$tmp/missing-index.yaml"
echo "$((2 * repeats)) runs of $seconds s, with and without an index; servers in $tmp"
"$python" -m buildcompare run "$tmp/missing-index.yaml" --output "$out"
"$python" -m buildcompare report "$out/missing-index.yaml" --output "$report"
