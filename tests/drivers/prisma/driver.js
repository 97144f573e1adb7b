// Prisma's client over its adapter for node's `pg`: its query compiler is WebAssembly, no engine is downloaded.
'use strict';

const { PrismaClient } = require('@prisma/client');
const { PrismaPg } = require('@prisma/adapter-pg');
const shared = require('../shared/shared.js');
const { say } = shared;

const open = (max) => new PrismaClient({ adapter: new PrismaPg({ max, ssl: shared.tls() }), transactionOptions: { maxWait: 60000, timeout: 60000 } });
const prisma = open(3);
const failure = (error) => [error.code, error.meta?.driverAdapterError?.cause ?? error.message.split('\n').at(-1)];

// Prisma's migrations are an engine of their own, which its package downloads from elsewhere.
const TABLES = [
  'create table "Shelf"(id serial primary key, name text not null unique)',
  `create table "Thing"(id serial primary key, number int not null, big int8 not null, price numeric(10,2) not null, facts jsonb not null,
    tags text[], raw bytea, made timestamptz(3), ident uuid, "shelfId" int not null references "Shelf")`,
];

async function models() {
  for (const text of TABLES) await prisma.$executeRawUnsafe(text);
  for (const name of ['one', 'two', 'three']) {
    const things = [...Array(5).keys()].map((number) => ({
      number, raw: Buffer.from([0, 255, number]), made: new Date(0), ident: '0b7a1d3c-55a2-4f3b-9f14-1d8f6b1c2a3e',
    }));
    await prisma.shelf.create({ data: { name, things: { create: things } } });
  }
  const shelves = await prisma.shelf.findMany({ include: { things: { orderBy: { id: 'asc' }, take: 2 }, _count: true }, orderBy: { id: 'asc' } });
  say(JSON.stringify(shelves, (_, value) => (typeof value === 'bigint' ? String(value) : value)));
  say(await prisma.thing.groupBy({ by: ['shelfId'], _sum: { number: true }, orderBy: { shelfId: 'asc' } }));
  say(await prisma.thing.createMany({ data: [...Array(100).keys()].map((number) => ({ number: number + 100, shelfId: 1 })) }));
  say(await prisma.thing.updateMany({ where: { number: { gt: 150 }, tags: { has: 'x' } }, data: { number: { increment: 1000 } } }));
  say(await prisma.shelf.upsert({ where: { name: 'one' }, update: { name: 'One' }, create: { name: 'one' } }));
  say(await prisma.thing.deleteMany({ where: { shelf: { name: 'two' } } }));
}

async function types() {
  for (const [name, value] of shared.types()) {
    await prisma.$queryRawUnsafe(`select $1::text::${name}::text as v, ${shared.literal(name, value)} as w`, value)
      .then((rows) => say(name, rows), (error) => say(name, failure(error)));
  }
  say(await prisma.$queryRaw`select ${1}::int a, ${1.5}::float8 b, ${true}::bool c, ${new Date(0)}::timestamptz d, ${Buffer.from([0, 255])}::bytea e`);
}

async function transactions() {
  say(await prisma.$transaction([
    prisma.shelf.create({ data: { name: 'batch 1' } }), prisma.shelf.create({ data: { name: 'batch 2' } }), prisma.shelf.count(),
  ]));
  await prisma.$transaction([prisma.shelf.create({ data: { name: 'batch 3' } }), prisma.shelf.create({ data: { name: 'One' } })])
    .catch((error) => say(failure(error)));
  await prisma.$transaction(async (tx) => {
    await tx.shelf.create({ data: { name: 'inner' } });
    say(await tx.$queryRaw`show transaction_isolation`);
    throw new Error('given up');
  }, { isolationLevel: 'Serializable' }).catch((error) => say(error.message));
  say(await prisma.shelf.findMany({ orderBy: { id: 'asc' } }));
}

async function errors() {
  for (const text of shared.errors()) {
    await prisma.$executeRawUnsafe(text).then(() => say('no error'), (error) => say(failure(error)));
    say(await prisma.shelf.count());
  }
}

async function fifty() {
  const many = open(shared.CLIENTS);
  await shared.fifty(async (number) => {
    let sum = 0;
    for (let round = 0; round < 5; round += 1) {
      sum += await many.$transaction(async (tx) => (await tx.$queryRaw`select ${number}::int + ${round}::int as v`)[0].v);
    }
    return sum;
  });
  await many.$disconnect();
}

shared.main(models, types, transactions, errors, fifty).finally(() => prisma.$disconnect());
