// node's `postgres`, which pipelines everything and prepares by names of its own.
'use strict';

const { Readable } = require('node:stream');
const { pipeline } = require('node:stream/promises');
const postgres = require('postgres');
const shared = require('../shared/shared.js');
const { say } = shared;

const open = (options = {}) => postgres({ max: 1, ssl: shared.tls(), onnotice: (notice) => say('notice', notice.message), ...options });
const failure = (error) => [error.code, error.message, error.detail, error.hint, error.position];

async function types() {
  for (const prepare of [true, false]) {
    const sql = open({ prepare });
    for (const [name, value] of shared.types()) {
      const simple = await sql.unsafe(`select ${shared.literal(name, value)} as v`);
      say(name, simple.columns[0].type, simple[0].v);
      say((await sql.unsafe(`select $1::text::${name} as v, null::${name} as n`, [value]))[0]);
    }
    say(await sql`select ${1}::int a, ${1.5}::float8 b, ${sql.json({ a: [1] })}::jsonb c, ${Buffer.from([0, 255])}::bytea d,
      ${new Date(0)}::timestamptz e, ${sql.array(['x', 'y"z'])}::text[] f, ${null}::int g, ${true}::bool h, ${10n}::int8 i`);
    await sql.end();
  }
}

async function pipelines() {
  const sql = open();
  const answers = await Promise.allSettled(
    [...Array(100).keys()].map((number) => (number % 3 ? sql`select ${number}::int / ${number % 7}::int as v` : sql`select ${number}::text as v`)),
  );
  say(answers.map((answer) => answer.value?.[0].v ?? answer.reason.code));
  say(await sql.unsafe('select 1 as a; select 2 as b').simple());
  say(await sql`select 1 as a where ${1} = 1`.describe().then(({ types, columns }) => [types, columns.map((column) => column.name)]));
  await sql.end();
}

async function transactions() {
  const sql = open();
  await sql`create table nps(a int primary key, b text)`;
  await sql.begin(async (tx) => {
    await tx`insert into nps ${tx([{ a: 1, b: 'one' }, { a: 2, b: 'two' }])}`;
    await tx.savepoint(async (inner) => {
      await inner`insert into nps values (1, 'again')`;
    }).catch((error) => say(failure(error)));
    await tx.savepoint('named', (inner) => [inner`insert into nps values (3, 'three')`, inner`update nps set b = b || '!'`]);
  });
  await sql.begin('isolation level serializable', async (tx) => {
    say(await tx`show transaction_isolation`);
    await tx`delete from nps`;
    throw new Error('given up');
  }).catch((error) => say(error.message));
  say(await sql`select * from nps order by a`);
  await sql.end();
}

async function copies() {
  const sql = open();
  const rows = [...Array(2000).keys()].map((number) => `${number + 10}\trow ${number}\n`);
  await pipeline(Readable.from(rows), await sql`copy nps from stdin`.writable());
  let length = 0;
  // Few rows: after many the driver forgets to read on, without pgmux too.
  const out = await sql`copy (select * from nps order by a limit 200) to stdout`.readable();
  for await (const chunk of out) length += chunk.length;
  say(length, await sql`select count(*) from nps`);
  await sql.end();
}

async function cursors() {
  const sql = open();
  for await (const rows of sql`select i from generate_series(1, 250) i`.cursor(100)) say(rows.length, rows.at(-1));
  let last;
  await sql`select i from generate_series(1, 1000) i`.forEach((row) => { last = row; });
  say(last);
  for await (const rows of sql`select i from generate_series(1, 250) i`.cursor(10)) { say(rows.length); break; }
  say(await sql`select 1 as one`);
  await sql.end();
}

async function notifications() {
  const sql = open();
  const got = [];
  let done;
  const all = new Promise((resolve) => { done = resolve; });
  const { unlisten } = await sql.listen('npsn', (payload) => got.push(payload) === 2 && done());
  await sql.notify('npsn', 'one');
  await sql.notify('npsn', 'two');
  await all;
  say(got);
  await unlisten();
  await sql.end();
}

async function errors() {
  const sql = open();
  for (const text of shared.errors()) {
    for (const query of [sql.unsafe(text), sql.unsafe(text, [], { prepare: true }), sql.unsafe(text).simple()]) {
      await query.then(() => say('no error'), (error) => say(failure(error)));
      say(await sql`select ${3}::int as three`);
    }
  }
  await sql.end();
}

async function largeObjects() {
  const sql = open();
  await sql.begin(async (tx) => {
    const [{ oid }] = await tx`select lo_from_bytea(0, ${Buffer.alloc(9000, 'abc')}) oid`;
    say(await tx`select lo_get(${oid}, 8995, 10), lo_unlink(${oid})`);
  });
  await sql.end();
}

async function cancels() {
  const sql = open({ max: 2 });
  const query = sql`select pg_sleep(30)`;
  const sleeping = query.then(() => 'not cancelled', failure);
  await shared.asleep(async (text) => (await sql.unsafe(text))[0].count);
  query.cancel();
  say(await sleeping);
  say(await sql`select 4 as four`);
  await sql.end();
}

async function fifty() {
  const sql = open({ max: shared.CLIENTS });
  await shared.fifty(async (number) => {
    let sum = 0;
    for (let round = 0; round < 10; round += 1) {
      sum += await sql.begin(async (tx) => {
        const [{ v }] = await tx`select ${number}::int + ${round}::int as v`;
        return v;
      });
      sum += (await sql`select ${number}::int as v`)[0].v;
    }
    return sum;
  });
  await sql.end();
}

shared.main(types, pipelines, transactions, copies, cursors, notifications, errors, largeObjects, cancels, fifty);
