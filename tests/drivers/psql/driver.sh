#!/bin/sh
# psql: its own commands, COPY both ways, \watch, \gset, \gexec, and \d, which asks long queries of the catalogue.
# Debian's psql is 15: \bind and \watch with a count are 16's, the commands for pipelines 18's.
set -e

psql() { command psql -X -q -v ON_ERROR_STOP="${stop:-1}" "$@" 2>&1; }

echo "== commands"
psql <<'SQL'
create table p(a int primary key, b text);
insert into p values (1, 'one'), (2, 'two');
begin; savepoint s; delete from p; rollback to s; commit;
select count(*) = 2 as complete from p \gset
\if :complete
\echo complete
\endif
\d p
\dt
\df lo_*
\dconfig work_mem
\x
select * from p order by a;
\x
\a
select format('select %s * 2 as double', a) from p order by a \gexec
select a, b, a as c from p \crosstabview
\gdesc
select 1 as one, 'x'::text as two \gdesc
\set FETCH_COUNT 7
select generate_series(1, 20);
\unset FETCH_COUNT
select 1\; select 2\; select 3;
\set AUTOCOMMIT off
insert into p values (100, 'hundred');
rollback;
\set AUTOCOMMIT on
\encoding LATIN1
select 'käse';
\encoding UTF8
SQL

echo "== types"
awk -F'\t' '{ gsub(/\047/, "\047\047", $2); print "select \047" $2 "\047::" $1 ", null::" $1 " \\g (format=csv)" }' \
    "$DRIVERS_SHARED/types.txt" | psql -At -f -

echo "== copies"
psql <<'SQL'
\copy p from stdin
3	three
4	four
\.
\copy (select * from p order by a) to stdout csv header
copy p from stdin;
5	five
\.
copy (select count(*), sum(a) from p) to stdout;
\copy p to 'p.copy'
begin;
delete from p;
\copy p from 'p.copy'
\copy p to program 'wc -l'
rollback;
SQL
seq 1000 20000 | sed 's/.*/&\tmany/' >many.copy
psql -c "\\copy p from 'many.copy'" -c 'select count(*) from p' -c "\\copy p to stdout" | tail -1
stop=0 psql <<'SQL'
\copy p from stdin
no number	x
\.
select count(*) from p;
SQL

echo "== watch"
# Before 16 it stops at an error only: the third answer divides by zero.
psql -At -c 'create sequence watched' -f - <<'SQL' || echo "ended by $?"
select 10 / (3 - nextval('watched')) \watch 0.01
SQL

echo "== errors"
while read -r text; do
    stop=0 psql -At -v VERBOSITY=verbose -v SHOW_CONTEXT=always <<SQL | grep -v '^LOCATION:'
$text;
select 'goes on';
begin;
$text;
\echo :SQLSTATE
select 'does not';
rollback;
SQL
done <"$DRIVERS_SHARED/errors.txt"

echo "== notifications"
psql -c 'listen psqln' -c "notify psqln, 'one'" -c 'select 1' | sed 's/ PID [0-9]*/ PID/'

echo "== large objects"
printf '%0.sabcdefghij' $(seq 20000) >large
psql <<'SQL' | sed 's/[0-9]\{5,\}/OID/'
\lo_import large 'a comment'
\lo_list
\lo_export :LASTOID copy
\lo_unlink :LASTOID
SQL
cmp large copy && echo same

echo "== cancels"
command psql -X -q -At -c 'select pg_sleep(30)' >cancelled 2>&1 &
sleeper=$!
sleepers="select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"
tries=0
until [ "$(psql -At -c "$sleepers")" != 0 ] || [ $tries = 200 ]; do tries=$((tries + 1)); done
kill -INT $sleeper
wait $sleeper || echo "ended by $?"
cat cancelled

echo "== fifty"
for number in $(seq 50); do
    psql -At -c "begin; select $number; commit" -c "select $number + 1" >"answer$number" &
    workers="$workers $!"
done
for worker in $workers; do wait "$worker"; done
for number in $(seq 50); do tr '\n' ' ' <"answer$number"; done
echo
echo "== end"
