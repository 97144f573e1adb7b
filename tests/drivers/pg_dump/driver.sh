#!/bin/sh
# pg_dump in each of its formats, several jobs with one snapshot, and pg_restore of what it wrote.
set -e

query() { psql -X -q -At -v ON_ERROR_STOP=1 "$@" 2>&1; }

# What is in the database, without the dump's own counters and times.
show() {
    query <<'SQL'
select relname, relkind from pg_class where relnamespace = 'shop'::regnamespace order by 1;
select count(*), sum(number), md5(string_agg(note, ',' order by id)) from shop.item;
select * from shop.totals order by 1;
select conname, contype, pg_get_constraintdef(oid) from pg_constraint where connamespace = 'shop'::regnamespace order by 1;
select nextval('shop.item_id_seq');
select shop.double(21);
select lomowner::regrole, length(lo_get(oid)) from pg_largeobject_metadata where lomowner = current_user::regrole;
SQL
}

clear() {
    query -c 'drop schema shop cascade' -c 'select lo_unlink(oid) from pg_largeobject_metadata where lomowner = current_user::regrole' 2>&1 | tail -1
}

echo "== make"
query <<'SQL'
create schema shop;
create type shop.colour as enum ('red', 'green');
create table shop.shelf(id int primary key, name text not null, colour shop.colour default 'red');
create table shop.item(id serial primary key, shelf int references shop.shelf, number numeric(10,2) check (number >= 0),
    note text, facts jsonb, raw bytea) partition by range (id);
create table shop.item_low partition of shop.item for values from (minvalue) to (1000);
create table shop.item_high partition of shop.item for values from (1000) to (maxvalue);
create index on shop.item(note);
create view shop.totals as select shelf, count(*), sum(number) from shop.item group by shelf;
create function shop.double(int) returns int language sql as 'select $1 * 2';
comment on table shop.item is 'it''s "quoted"';
insert into shop.shelf select i, 'shelf ' || i from generate_series(1, 3) i;
insert into shop.item(shelf, number, note, facts, raw)
    select 1 + i % 3, i, 'käse ' || repeat('x', i % 100) || E'\t\\', jsonb_build_object('i', i), int4send(i) from generate_series(1, 3000) i;
SQL
query -c "select lo_from_bytea(0, repeat('x', 10000)::bytea) > 0"
show

echo "== plain"
pg_dump --no-owner >plain.sql
grep -c . plain.sql
clear
query -f plain.sql | tail -1
show

for format in custom tar; do
    echo "== $format"
    pg_dump --no-owner --format=$format --file=dump.$format
    pg_restore --list dump.$format | grep -v '^;' | sed -e 's/^[0-9]*; [0-9]* [0-9]* //' -e 's/^BLOB - [0-9]* /BLOB - OID /' | sort
    clear
    pg_restore --no-owner --exit-on-error --single-transaction --dbname="$PGDATABASE" dump.$format
    show
done

echo "== directory, two jobs"
pg_dump --no-owner --format=directory --jobs=2 --file=dump.d
clear
pg_restore --no-owner --exit-on-error --jobs=2 --dbname="$PGDATABASE" dump.d
show

echo "== inserts, one table"
pg_dump --no-owner --column-inserts --rows-per-insert=50 --table=shop.item_low | grep -v -E '^(--|\\|$)' | md5sum

echo "== errors"
pg_dump --table=no_such_table 2>&1 || echo "ended by $?"
pg_restore --no-owner --dbname="$PGDATABASE" dump.custom 2>&1 | grep -c 'already exists' || echo "ended by $?"
echo "== end"
