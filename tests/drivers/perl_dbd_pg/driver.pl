# Perl's DBD::Pg, which prepares on its second use, and names its statements by its process id.
use strict;
use warnings;
use utf8;
use DBI;
use DBD::Pg qw(:pg_types :async);
use Data::Dumper;

binmode STDOUT, ':encoding(UTF-8)';
$| = 1;
$Data::Dumper::Terse = 1;
$Data::Dumper::Indent = 0;
$Data::Dumper::Sortkeys = 1;

my $sleepers = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";

sub lines {
    open my $file, '<:encoding(UTF-8)', "$ENV{DRIVERS_SHARED}/$_[0]" or die $!;
    chomp(my @lines = <$file>);
    return @lines;
}

sub say { print join(' ', map { ref $_ || !defined $_ ? Dumper($_) : $_ } @_), "\n" }

sub connect_ {
    return DBI->connect("dbi:Pg:sslmode=$ENV{PGSSLMODE}", undef, undef, { RaiseError => 1, PrintError => 0, PrintWarn => 0, pg_enable_utf8 => 1, @_ });
}

sub failure {
    my ($db) = @_;
    (my $text = $db->errstr) =~ s/\n/ /g;
    say $db->state, $text;
}

my @sections = (
    types => sub {
        for my $prepare (0, 1, 2) {
            my $db = connect_(pg_server_prepare => $prepare, pg_switch_prepared => 1);
            for (lines('types.txt')) {
                my ($type, $value) = split /\t/, $_, 2;
                my $statement = $db->prepare("select ?::text::$type, null::$type");
                for (1 .. 2) {
                    $statement->execute($value);
                    say $prepare, $type, $statement->{pg_type}[0], $statement->fetchrow_arrayref;
                    $statement->finish;
                }
            }
            my $bytes = $db->prepare('select ?::bytea, ?::int[]');
            $bytes->bind_param(1, "\x00\xff", { pg_type => PG_BYTEA });
            $bytes->bind_param(2, [1, undef, 3]);
            $bytes->execute;
            say $bytes->fetchrow_arrayref;
            $db->disconnect;
        }
    },
    statements => sub {
        my $db = connect_(pg_switch_prepared => 1);
        my @statements = map { $db->prepare("select ?::int * $_") } 0 .. 39;
        my $sum = 0;
        for my $round (0 .. 3) {
            for (@statements) { $_->execute($round); $sum += $_->fetchrow_array; $_->finish }
        }
        say $sum;
        undef @statements;
        say $db->selectall_arrayref('select name from pg_prepared_statements');
        my $many = $db->prepare('select ?::int');
        my @status;
        say scalar $many->execute_array({ ArrayTupleStatus => \@status }, [1 .. 50]);
        say $db->do('select 1; select 2');
        $db->disconnect;
    },
    transactions => sub {
        my $db = connect_(AutoCommit => 0);
        $db->do('create table perl(a int primary key, b text)');
        $db->commit;
        my $insert = $db->prepare('insert into perl values (?, ?)');
        $insert->execute(1, 'one');
        $db->pg_savepoint('s');
        eval { $insert->execute(1, 'again') } or failure($db);
        say $db->ping;
        $db->pg_rollback_to('s');
        $insert->execute(2, 'two');
        $db->pg_release('s');
        $db->commit;
        say $db->do('delete from perl');
        $db->rollback;
        say $db->selectall_arrayref('select * from perl order by a');
        say $db->table_info(undef, 'public', 'perl', 'TABLE')->fetchall_arrayref->[0][2];
        $db->disconnect;
    },
    copies => sub {
        my $db = connect_();
        $db->do('copy perl from stdin');
        $db->pg_putcopydata(($_ + 10) . "\trow $_\n") for 0 .. 1999;
        say $db->pg_putcopyend;
        $db->do('copy (select * from perl order by a) to stdout');
        my ($count, $row) = (0);
        $count += length $row while $db->pg_getcopydata(\$row) >= 0;
        say $count;
        $db->do('copy perl from stdin');
        $db->pg_putcopydata("no number\tx\n") for 1 .. 100;
        eval { $db->pg_putcopyend } or failure($db);
        say $db->selectall_arrayref('select count(*) from perl');
        $db->disconnect;
    },
    notifications => sub {
        my ($listener, $sender) = (connect_(), connect_());
        $listener->do('listen perln');
        $sender->do("notify perln, 'one'");
        $sender->do("select pg_notify('perln', ?)", undef, 'two');
        my $count = 0;
        while ($count < 2) {
            $listener->do('select 1');
            while (my $got = $listener->pg_notifies) { say $got->[0], $got->[2]; $count++ }
        }
        $_->disconnect for $listener, $sender;
    },
    large_objects => sub {
        my $db = connect_(AutoCommit => 0);
        my $oid = $db->pg_lo_creat($db->{pg_INV_READ} | $db->{pg_INV_WRITE});
        my $fd = $db->pg_lo_open($oid, $db->{pg_INV_READ} | $db->{pg_INV_WRITE});
        say $db->pg_lo_write($fd, '0123456789' x 2000, 20000);
        say $db->pg_lo_lseek($fd, 19995, 0);
        my $rest = '';
        say $db->pg_lo_read($fd, $rest, 100), $rest;
        $db->pg_lo_close($fd);
        $db->pg_lo_unlink($oid);
        $db->commit;
        $db->disconnect;
    },
    errors => sub {
        my $db = connect_();
        for my $text (lines('errors.txt')) {
            eval { $db->do($text); 1 } or failure($db);
            eval { $db->prepare($text, { pg_prepare_now => 1 })->execute; 1 } or failure($db);
            say $db->selectrow_array('select ?::int', undef, 3);
        }
        $db->disconnect;
    },
    cancels => sub {
        my ($db, $other) = (connect_(), connect_());
        $db->do('select pg_sleep(30)', { pg_async => PG_ASYNC });
        for (1 .. 2000) {
            last if $other->selectrow_array($sleepers);
            select undef, undef, undef, 0.01;
        }
        say $db->pg_cancel;
        say $db->selectrow_array('select 4');
        $_->disconnect for $db, $other;
    },
    # Perl's threads do not mix with DBI: fifty connections that are asked at once and answer in turn.
    fifty => sub {
        my @all = map { connect_() } 0 .. 49;
        for my $round (0 .. 4) {
            my @statements;
            for my $number (0 .. 49) {
                $statements[$number] = $all[$number]->prepare('select ?::int + ?::int, pg_sleep(0.001)', { pg_async => PG_ASYNC });
                $statements[$number]->execute($number, $round);
            }
            for my $number (0 .. 49) {
                $all[$number]->pg_result;
                say $number, $statements[$number]->fetchrow_arrayref;
            }
        }
        $_->disconnect for @all;
    },
);

while (my ($name, $section) = splice @sections, 0, 2) {
    say "== $name";
    $section->();
}
say '== end';
