// node's `pg`, which says Flush by itself in the middle of its pipelines, with its cursors, COPY streams and pool.
'use strict';

const { Client, Pool } = require('pg');
const copy = require('pg-copy-streams');
const Cursor = require('pg-cursor');
const { Readable } = require('node:stream');
const { pipeline } = require('node:stream/promises');
const shared = require('../shared/shared.js');
const { say } = shared;

const connect = async (options = {}) => {
  const client = new Client({ ssl: shared.tls(), ...options });
  await client.connect();
  return client;
};

const failure = (error) => [error.code, error.message, error.detail, error.hint, error.position];

async function types() {
  const client = await connect();
  for (const [name, value] of shared.types()) {
    const simple = await client.query(`select ${shared.literal(name, value)} as v`);
    say(name, simple.fields[0].dataTypeID, simple.rows[0].v);
    for (const binary of [false, true]) {
      // Of many types the driver knows no binary format and gives the bytes as text: bytea shows them as they are.
      const text = `select $1::${name} as v, null::${name} as n`;
      const row = await client.query({ text, values: [value], binary, types: { getTypeParser: () => String } });
      say(name, binary, JSON.stringify(row.rows[0]));
    }
  }
  const row = await client.query('select $1::int a, $2::float8 b, $3::jsonb c, $4::bytea d, $5::timestamptz e, $6::text[] f', [
    1, 1.5, { a: [1] }, Buffer.from([0, 255]), new Date(0), ['x', null, 'y"z'],
  ]);
  say(row.rows);
  await client.end();
}

async function queries() {
  const client = await connect();
  const several = await client.query('select 1 as a; create table npg(a int primary key, b text); select 2 as b');
  say(several.map((result) => [result.command, result.rows]));
  for (let round = 0; round < 3; round += 1) {
    for (let number = 0; number < 30; number += 1) {
      const { rows } = await client.query({ name: `s${number}`, text: `select $1::int * ${number} as v`, values: [round] });
      if (rows[0].v !== round * number) say('wrong', rows);
    }
  }
  say((await client.query({ text: 'select 1, 2 as b', rowMode: 'array' })).rows);
  await client.end();
}

async function queued() {
  const client = await connect();
  const answers = await Promise.allSettled(
    [...Array(60).keys()].map((number) => client.query(`select $1::int / $2::int as v`, [number, number % 7])),
  );
  say(answers.map((answer) => answer.value?.rows[0].v ?? answer.reason.code));
  await client.end();
}

async function transactions() {
  const client = await connect();
  for (const text of [
    'begin', "insert into npg values (1, 'one')", 'savepoint s', "insert into npg values (1, 'again')", 'select 1',
    'rollback to s', "insert into npg values (2, 'two')", 'commit', 'begin', 'delete from npg', 'rollback',
  ]) {
    await client.query(text).then((result) => say(text, result.command, result.rowCount), (error) => say(text, failure(error)));
  }
  say((await client.query('select * from npg order by a')).rows);
  await client.end();
}

async function copies() {
  const client = await connect();
  const into = async (chunks) => {
    const stream = client.query(copy.from('copy npg from stdin'));
    await pipeline(Readable.from(chunks), stream).catch((error) => say(failure(error)));
    say(stream.rowCount);
  };
  await into([...Array(2000).keys()].map((number) => `${number + 10}\trow ${number}\n`));
  await into(['no number\tx\n'.repeat(1000)]);
  let length = 0;
  for await (const chunk of client.query(copy.to('copy (select * from npg order by a) to stdout'))) length += chunk.length;
  say(length, (await client.query('select count(*) from npg')).rows);
  await client.end();
}

async function cursors() {
  const client = await connect();
  await client.query('begin');
  const cursor = client.query(new Cursor('select i from generate_series(1, $1::int) i', [250]));
  for (let rows = await cursor.read(100); rows.length > 0; rows = await cursor.read(100)) say(rows.length, rows.at(-1));
  await cursor.close();
  await client.query('commit');
  const early = client.query(new Cursor('select i from generate_series(1, 1000) i'));
  say(await early.read(3));
  await early.close();
  say((await client.query('select 1 as one')).rows);
  await client.end();
}

async function notifications() {
  const [listener, sender] = [await connect(), await connect()];
  const got = [];
  const all = new Promise((resolve) => {
    listener.on('notification', ({ channel, payload }) => got.push([channel, payload]) === 3 && resolve());
  });
  listener.on('notice', (notice) => say('notice', notice.message));
  await listener.query("listen npgn; do $$ begin raise notice 'listening'; end $$");
  await sender.query("notify npgn, 'one'");
  await sender.query('select pg_notify($1, $2)', ['npgn', 'two']);
  await sender.query("begin; notify npgn, 'three'; commit");
  await all;
  say(got);
  await Promise.all([listener.end(), sender.end()]);
}

async function largeObjects() {
  const client = await connect();
  await client.query('begin');
  const { oid } = (await client.query('select lo_create(0) oid')).rows[0];
  const { fd } = (await client.query('select lo_open($1, 393216) fd', [oid])).rows[0];
  say((await client.query('select lowrite($1, $2)', [fd, Buffer.alloc(9000, 'abc')])).rows);
  say((await client.query('select lo_lseek($1, 8995, 0), loread($1, 10)', [fd])).rows);
  await client.query('commit');
  say((await client.query('select length(lo_get($1)), lo_unlink($1)', [oid])).rows);
  await client.end();
}

async function errors() {
  const client = await connect();
  for (const text of shared.errors()) {
    for (const query of [text, { text, name: `failing ${text}`, values: [] }]) {
      await client.query(query).then(() => say('no error'), (error) => say(failure(error)));
      say((await client.query('select $1::int as three', [3])).rows);
    }
  }
  await client.end();
}

async function cancels() {
  const [client, other] = [await connect(), await connect()];
  const sleeping = client.query('select pg_sleep(30)').then(() => 'not cancelled', failure);
  await shared.asleep(async (text) => (await other.query(text)).rows[0].count);
  // The driver's own way: another connection that sends nothing but the request.
  const canceller = new Client();
  canceller.cancel(client, client.activeQuery ?? client._activeQuery);
  say(await sleeping);
  say((await client.query('select 4 as four')).rows);
  await Promise.all([client.end(), other.end()]);
}

async function fifty() {
  const pool = new Pool({ max: shared.CLIENTS, ssl: shared.tls() });
  await shared.fifty(async (number) => {
    let sum = 0;
    for (let round = 0; round < 10; round += 1) {
      const client = await pool.connect();
      await client.query('begin');
      sum += (await client.query({ name: 'sum', text: 'select $1::int + $2::int as v', values: [number, round] })).rows[0].v;
      await client.query('commit');
      client.release();
    }
    return sum;
  });
  await pool.end();
}

shared.main(
  types, queries, queued, transactions, copies, cursors, notifications, largeObjects, errors, cancels, fifty,
);
