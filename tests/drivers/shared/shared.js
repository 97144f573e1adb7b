// What the node drivers share: the lists of types and errors, and how to show what came back.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const util = require('node:util');

const lines = (name) => fs.readFileSync(path.join(__dirname, name), 'utf8').trimEnd().split('\n');

exports.CLIENTS = 50;
exports.types = () => lines('types.txt').map((line) => line.split('\t'));
exports.errors = () => lines('errors.txt');
exports.literal = (name, value) => `'${value.replaceAll("'", "''")}'::${name}`;

const show = (value) =>
  typeof value === 'string' ? value : util.inspect(value, { depth: 6, breakLength: Infinity, compact: true });
exports.say = (...values) => console.log(values.map(show).join(' '));

exports.main = async (...sections) => {
  for (const section of sections) {
    exports.say('==', section.name);
    await section();
  }
  exports.say('== end');
};

const SLEEPERS =
  "select count(*)::int as count from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";

// Comes back when the query that is to be cancelled runs.
exports.asleep = async (count) => {
  for (let tries = 0; tries < 2000 && (await count(SLEEPERS)) === 0; tries += 1) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
};

exports.fifty = async (work) => {
  const numbers = [...Array(exports.CLIENTS).keys()];
  const answers = await Promise.all(numbers.map((number) => work(number).catch((error) => String(error))));
  answers.forEach((answer, number) => exports.say(number, answer));
};

// What the drivers call ssl, from PGSSLMODE as libpq understands it; without TLS where it only prefers it.
exports.tls = () => {
  const mode = process.env.PGSSLMODE ?? 'prefer';
  if (['disable', 'allow', 'prefer'].includes(mode)) return false;
  const verify = mode.startsWith('verify');
  return { rejectUnauthorized: verify, ca: verify ? fs.readFileSync(process.env.PGSSLROOTCERT) : undefined };
};
