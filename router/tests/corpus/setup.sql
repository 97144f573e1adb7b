-- What the reads of statements.txt name.
create table t (a int, b text, id int, v int);
create table u (a int, b text);
create table notes (comment text, created_at timestamptz, updated_at timestamptz, deleted boolean);
create table advisory_locks (a int);
create table verbs (insert int, update int, delete int);
create table "insert" (a int);
create table odd ("a;delete" int);
create table users (id int, name text, email text);
create table pgbench_accounts (aid int, abalance int);
create sequence s;
insert into t values (1, 'x', 1, 1), (2, 'y', 2, 2);
