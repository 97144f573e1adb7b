<?php
// PHP's PDO over libpq, with its own and with emulated preparation.

declare(strict_types=1);

const CLIENTS = 50;
const SLEEPERS = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";

function lines(string $name): array
{
    return explode("\n", rtrim(file_get_contents(getenv('DRIVERS_SHARED') . "/$name"), "\n"));
}

function say(mixed ...$values): void
{
    echo implode(' ', array_map(fn ($value) => is_string($value) ? $value : json_encode($value), $values)), "\n";
}

function connect(array $options = []): PDO
{
    $place = sprintf('host=%s;port=%s;dbname=%s;sslmode=%s', getenv('PGHOST'), getenv('PGPORT'), getenv('PGDATABASE'), getenv('PGSSLMODE'));
    $options += [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION, PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_NUM];
    return new PDO("pgsql:$place", getenv('PGUSER'), getenv('PGPASSWORD'), $options);
}

function failure(PDOException $error): string
{
    return str_replace("\n", ' ', $error->getMessage());
}

/** The driver's ways to prepare: by a name, without one (PQexecParams), and in the text. */
const MODES = [
    'prepared' => [],
    'unprepared' => [PDO::PGSQL_ATTR_DISABLE_PREPARES => true],
    'emulated' => [PDO::ATTR_EMULATE_PREPARES => true],
];

function types(): void
{
    foreach (MODES as $mode => $options) {
        $db = connect($options);
        foreach (lines('types.txt') as $line) {
            [$type, $value] = explode("\t", $line, 2);
            $statement = $db->prepare("select cast(:value as text)::$type, null::$type");
            foreach ([1, 2] as $round) {
                $statement->execute(['value' => $value]);
                $row = $statement->fetch();
                $row[0] = is_resource($row[0]) ? bin2hex(stream_get_contents($row[0])) : $row[0];
                say($mode, $type, gettype($row[0]), $row, $statement->getColumnMeta(0)['native_type']);
            }
        }
        $statement = $db->prepare('select ?::bytea, ?::bool, ?::int');
        $statement->bindValue(1, "\x00\xff", PDO::PARAM_LOB);
        $statement->bindValue(2, true, PDO::PARAM_BOOL);
        $statement->bindValue(3, null, PDO::PARAM_NULL);
        $statement->execute();
        $row = $statement->fetch();
        say(bin2hex(stream_get_contents($row[0])), $row[1], $row[2]);
    }
}

function statements(): void
{
    foreach (MODES as $mode => $options) {
        $db = connect($options);
        $statements = [];
        for ($number = 0; $number < 40; $number++) {
            $statements[] = $db->prepare("select ?::int * $number");
        }
        $sum = 0;
        for ($round = 0; $round < 3; $round++) {
            foreach ($statements as $statement) {
                $statement->execute([$round]);
                $sum += $statement->fetchColumn();
            }
        }
        unset($statements, $statement);
        say($mode, $sum, $db->exec('select 1; select 2'));
    }
}

function transactions(): void
{
    $db = connect();
    $db->exec('create table php(a int primary key, b text)');
    $db->beginTransaction();
    $insert = $db->prepare('insert into php values (?, ?) returning a');
    $insert->execute([1, 'one']);
    say($insert->fetchAll(), $insert->rowCount(), $db->inTransaction());
    $db->exec('savepoint s');
    try {
        $insert->execute([1, 'again']);
    } catch (PDOException $error) {
        say(failure($error));
    }
    try {
        $db->query('select 1');
    } catch (PDOException $error) {
        say(failure($error));
    }
    $db->exec('rollback to s');
    $insert->execute([2, 'two']);
    $db->commit();
    $db->beginTransaction();
    say($db->exec('delete from php'));
    $db->rollBack();
    $cursor = $db->prepare('select * from php order by a', [PDO::ATTR_CURSOR => PDO::CURSOR_SCROLL]);
    $db->beginTransaction();
    $cursor->execute();
    say($cursor->fetch(PDO::FETCH_NUM, PDO::FETCH_ORI_LAST), $cursor->fetch(PDO::FETCH_NUM, PDO::FETCH_ORI_FIRST));
    $cursor = null;
    $db->commit();
}

function copies(): void
{
    $db = connect();
    $rows = array_map(fn ($number) => ($number + 10) . "\trow $number", range(0, 1999));
    say($db->pgsqlCopyFromArray('php', $rows));
    $got = $db->pgsqlCopyToArray('php');
    say(count($got), end($got));
    try {
        $db->pgsqlCopyFromArray('php', array_fill(0, 100, "no number\tx"));
    } catch (PDOException $error) {
        say(failure($error));
    }
    say($db->query('select count(*) from php')->fetchAll());
}

function notifications(): void
{
    [$listener, $sender] = [connect(), connect()];
    $listener->exec('listen phpn');
    $sender->exec("notify phpn, 'one'");
    $sender->query("select pg_notify('phpn', 'two')");
    for ($count = 0; $count < 2; $count++) {
        $got = $listener->pgsqlGetNotify(PDO::FETCH_ASSOC, 20000);
        say($got['message'], $got['payload']);
    }
}

function large_objects(): void
{
    $db = connect();
    $db->beginTransaction();
    $oid = $db->pgsqlLOBCreate();
    $stream = $db->pgsqlLOBOpen($oid, 'w');
    say(fwrite($stream, str_repeat('0123456789', 2000)));
    fseek($stream, 19995);
    say(fread($stream, 100));
    fclose($stream);
    say($db->pgsqlLOBUnlink($oid));
    $db->commit();
}

function errors(): void
{
    foreach (MODES as $mode => $options) {
        $db = connect($options);
        foreach (lines('errors.txt') as $text) {
            foreach ([fn () => $db->exec($text), fn () => $db->prepare($text)->execute()] as $run) {
                try {
                    $run();
                } catch (PDOException $error) {
                    say($mode, failure($error));
                }
                say($db->query('select 3')->fetchColumn());
            }
        }
    }
}

/** PDO cannot cancel, PHP's older extension can. */
function cancels(): void
{
    $place = sprintf("host=%s port=%s dbname=%s user=%s", getenv('PGHOST'), getenv('PGPORT'), getenv('PGDATABASE'), getenv('PGUSER'));
    $db = pg_connect($place);
    $other = connect();
    pg_send_query($db, 'select pg_sleep(30)');
    for ($tries = 0; $tries < 2000 && $other->query(SLEEPERS)->fetchColumn() == 0; $tries++) {
        usleep(10000);
    }
    say(pg_cancel_query($db));
    say(pg_fetch_all(pg_query_params($db, 'select $1::int as four', [4])));
    pg_close($db);
}

/** PHP has no threads: fifty connections, each in a transaction of its own for a moment, asked in turn and at once. */
function fifty(): void
{
    $all = [];
    for ($number = 0; $number < CLIENTS; $number++) {
        $place = sprintf("host=%s port=%s dbname=%s user=%s", getenv('PGHOST'), getenv('PGPORT'), getenv('PGDATABASE'), getenv('PGUSER'));
        $all[] = pg_connect($place, PGSQL_CONNECT_FORCE_NEW);
    }
    for ($round = 0; $round < 5; $round++) {
        foreach ($all as $number => $db) {
            pg_send_query_params($db, 'select $1::int + $2::int, pg_sleep(0.001)', [$number, $round]);
        }
        foreach ($all as $number => $db) {
            say($number, pg_fetch_result(pg_get_result($db), 0, 0), pg_get_result($db));
        }
    }
}

foreach (['types', 'statements', 'transactions', 'copies', 'notifications', 'large_objects', 'errors', 'cancels', 'fifty'] as $section) {
    say("== $section");
    $section();
}
say('== end');
