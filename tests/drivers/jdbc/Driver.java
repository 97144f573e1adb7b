// pgjdbc, run from its source by `java`: its switch to named statements and to binary, its batches, COPY and large
// objects.

import java.io.StringReader;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.ArrayList;
import org.postgresql.PGConnection;
import org.postgresql.PGNotification;
import org.postgresql.largeobject.LargeObject;
import org.postgresql.largeobject.LargeObjectManager;

public class Driver {
    interface Section {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        section("types", Driver::types);
        section("statements", Driver::statements);
        section("batches", Driver::batches);
        section("transactions", Driver::transactions);
        section("copies", Driver::copies);
        section("cursors", Driver::cursors);
        section("notifications", Driver::notifications);
        section("large objects", Driver::largeObjects);
        section("errors", Driver::errors);
        section("cancels", Driver::cancels);
        section("fifty", Driver::fifty);
        say("== end");
    }

    static void section(String name, Section section) throws Exception {
        say("== " + name);
        section.run();
    }

    static void say(Object... values) {
        StringBuilder line = new StringBuilder();
        for (Object value : values) {
            line.append(line.length() == 0 ? "" : " ").append(show(value));
        }
        System.out.println(line);
    }

    static Object show(Object value) {
        if (value instanceof byte[]) {
            return Arrays.toString((byte[]) value);
        }
        return value instanceof int[] ? Arrays.toString((int[]) value) : value;
    }

    static void say(SQLException error) {
        say(error.getSQLState(), String.valueOf(error.getMessage()).replace('\n', ' '));
    }

    static Connection connect(String... options) throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("user", System.getenv("PGUSER"));
        properties.setProperty("password", System.getenv("PGPASSWORD"));
        properties.setProperty("sslmode", System.getenv("PGSSLMODE"));
        if (System.getenv("PGSSLROOTCERT") != null) {
            properties.setProperty("sslrootcert", System.getenv("PGSSLROOTCERT"));
        }
        for (int index = 0; index < options.length; index += 2) {
            properties.setProperty(options[index], options[index + 1]);
        }
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/";
        return DriverManager.getConnection(url + System.getenv("PGDATABASE"), properties);
    }

    static List<String> lines(String name) throws Exception {
        return Files.readAllLines(Path.of(System.getenv("DRIVERS_SHARED"), name));
    }

    static void types() throws Exception {
        for (String threshold : new String[] {"0", "1", "-1"}) {
            try (Connection conn = connect("prepareThreshold", threshold)) {
                for (String line : lines("types.txt")) {
                    String[] type = line.split("\t", 2);
                    String literal = "'" + type[1].replace("'", "''") + "'::" + type[0];
                    try (Statement statement = conn.createStatement();
                            ResultSet rows = statement.executeQuery("select " + literal.replace("?", "??"))) {
                        rows.next();
                        say(threshold, type[0], rows.getMetaData().getColumnTypeName(1), rows.getObject(1));
                    }
                    String text = "select ?::" + type[0] + ", null::" + type[0];
                    try (PreparedStatement statement = conn.prepareStatement(text)) {
                        for (int round = 0; round < 2; round++) {
                            statement.setObject(1, type[1], java.sql.Types.OTHER);
                            ResultSet rows = statement.executeQuery();
                            rows.next();
                            Object value = rows.getObject(1);
                            say(value, rows.getObject(2), value instanceof byte[] ? "" : rows.getString(1));
                        }
                    } catch (SQLException error) {
                        say(error);
                    }
                }
            }
        }
    }

    static void statements() throws Exception {
        for (String mode : new String[] {"simple", "extended", "extendedForPrepared", "extendedCacheEverything"}) {
            try (Connection conn = connect("preferQueryMode", mode)) {
                long sum = 0;
                for (int round = 0; round < 8; round++) {
                    for (int number = 0; number < 20; number++) {
                        try (PreparedStatement statement = conn.prepareStatement("select ?::int * " + number)) {
                            statement.setInt(1, round);
                            ResultSet rows = statement.executeQuery();
                            rows.next();
                            sum += rows.getInt(1);
                        }
                    }
                }
                try (Statement statement = conn.createStatement()) {
                    boolean more = statement.execute("select 1; select 2; select 3");
                    while (more) {
                        ResultSet rows = statement.getResultSet();
                        rows.next();
                        sum += rows.getInt(1);
                        more = statement.getMoreResults();
                    }
                }
                say(mode, sum);
            }
        }
    }

    static void batches() throws Exception {
        try (Connection conn = connect()) {
            conn.createStatement().execute("create table jb(a int primary key, b text)");
            for (String rewrite : new String[] {"false", "true"}) {
                try (Connection batching = connect("reWriteBatchedInserts", rewrite, "prepareThreshold", "1")) {
                    PreparedStatement insert = batching.prepareStatement("insert into jb values (?, ?)");
                    for (int number = 0; number < 500; number++) {
                        insert.setInt(1, number);
                        insert.setString(2, "row " + number);
                        insert.addBatch();
                    }
                    int[] counts = insert.executeBatch();
                    say(rewrite, counts.length, Arrays.stream(counts).sum());
                    for (int number = 495; number < 510; number++) {
                        insert.setInt(1, number);
                        insert.setString(2, "again");
                        insert.addBatch();
                    }
                    try {
                        insert.executeBatch();
                    } catch (java.sql.BatchUpdateException error) {
                        say(error.getSQLState(), error.getUpdateCounts());
                    }
                    Statement mixed = batching.createStatement();
                    mixed.addBatch("update jb set b = b || '!'");
                    mixed.addBatch("delete from jb where a % 2 = 0");
                    mixed.addBatch("delete from jb");
                    say(mixed.executeBatch());
                    PreparedStatement keys = batching.prepareStatement("insert into jb values (?, 'x')", new String[] {"a"});
                    keys.setInt(1, 7);
                    keys.executeUpdate();
                    ResultSet rows = keys.getGeneratedKeys();
                    rows.next();
                    say(rows.getInt(1), batching.createStatement().executeUpdate("delete from jb"));
                }
            }
        }
    }

    static void transactions() throws Exception {
        for (String autosave : new String[] {"never", "always", "conservative"}) {
            try (Connection conn = connect("autosave", autosave)) {
                conn.setAutoCommit(false);
                conn.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
                Statement statement = conn.createStatement();
                statement.executeUpdate("insert into jb values (1, 'one')");
                Savepoint savepoint = conn.setSavepoint("here");
                try {
                    statement.executeUpdate("insert into jb values (1, 'again')");
                } catch (SQLException error) {
                    say(error);
                }
                try {
                    statement.executeQuery("select 1");
                    say("goes on");
                } catch (SQLException error) {
                    say(error);
                }
                conn.rollback(savepoint);
                statement.executeUpdate("insert into jb values (2, 'two')");
                conn.rollback();
                conn.setReadOnly(true);
                try {
                    statement.executeUpdate("insert into jb values (3, 'three')");
                } catch (SQLException error) {
                    say(error);
                }
                conn.rollback();
                conn.setReadOnly(false);
                ResultSet rows = statement.executeQuery("select count(*) from jb");
                rows.next();
                say(autosave, rows.getInt(1));
                conn.commit();
            }
        }
    }

    static void copies() throws Exception {
        try (Connection conn = connect()) {
            var copy = conn.unwrap(PGConnection.class).getCopyAPI();
            StringBuilder text = new StringBuilder();
            for (int number = 0; number < 3000; number++) {
                text.append(number).append("\trow ").append(number).append('\n');
            }
            say(copy.copyIn("copy jb from stdin", new StringReader(text.toString())));
            StringWriter out = new StringWriter();
            say(copy.copyOut("copy (select * from jb order by a) to stdout csv", out), out.toString().length());
            try {
                copy.copyIn("copy jb from stdin", new StringReader("no number\tx\n".repeat(1000)));
            } catch (SQLException error) {
                say(error);
            }
            var started = copy.copyIn("copy jb from stdin");
            started.cancelCopy();
            say(conn.createStatement().executeUpdate("delete from jb where a > 1000"));
        }
    }

    static void cursors() throws Exception {
        try (Connection conn = connect()) {
            conn.setAutoCommit(false);
            for (int size : new int[] {1, 99, 1000}) {
                PreparedStatement statement = conn.prepareStatement("select a from jb order by a");
                statement.setFetchSize(size);
                ResultSet rows = statement.executeQuery();
                long sum = 0;
                while (rows.next()) {
                    sum += rows.getInt(1);
                }
                say(size, sum);
            }
            PreparedStatement statement = conn.prepareStatement("select a from jb order by a");
            statement.setMaxRows(5);
            ResultSet rows = statement.executeQuery();
            int count = 0;
            while (rows.next()) {
                count++;
            }
            say(count);
            conn.commit();
        }
    }

    static void notifications() throws Exception {
        try (Connection listener = connect(); Connection sender = connect()) {
            listener.createStatement().execute("listen jn");
            sender.createStatement().execute("notify jn, 'one'");
            sender.createStatement().execute("select pg_notify('jn', 'two')");
            for (int seen = 0; seen < 2; ) {
                PGNotification[] got = listener.unwrap(PGConnection.class).getNotifications(20_000);
                if (got == null) {
                    continue;
                }
                for (PGNotification notification : got) {
                    say(notification.getName(), notification.getParameter());
                    seen++;
                }
            }
        }
    }

    static void largeObjects() throws Exception {
        try (Connection conn = connect()) {
            conn.setAutoCommit(false);
            LargeObjectManager manager = conn.unwrap(PGConnection.class).getLargeObjectAPI();
            long oid = manager.createLO();
            try (LargeObject object = manager.open(oid)) {
                object.write("0123456789".repeat(20000).getBytes());
                object.seek(199_995);
                say(new String(object.read(100)), object.size(), object.tell64());
                object.truncate(7);
                say(object.size64());
            }
            manager.delete(oid);
            conn.commit();
        }
    }

    static void errors() throws Exception {
        for (String mode : new String[] {"simple", "extended"}) {
            try (Connection conn = connect("preferQueryMode", mode)) {
                for (String text : lines("errors.txt")) {
                    try {
                        conn.createStatement().execute(text);
                    } catch (SQLException error) {
                        say(error);
                    }
                    try (PreparedStatement statement = conn.prepareStatement("select ?::int")) {
                        statement.setInt(1, 3);
                        ResultSet rows = statement.executeQuery();
                        rows.next();
                        say(rows.getInt(1));
                    }
                }
                Statement warned = conn.createStatement();
                warned.execute("do $$ begin raise warning 'be warned'; end $$");
                say(warned.getWarnings().getMessage());
            }
        }
    }

    static final String SLEEPERS = "select count(*) from pg_stat_activity "
            + "where datname = current_database() and wait_event = 'PgSleep'";

    static void cancels() throws Exception {
        try (Connection conn = connect(); Connection other = connect()) {
            Statement sleeping = conn.createStatement();
            Thread canceller = new Thread(() -> {
                try {
                    int asleep = 0;
                    for (int tries = 0; asleep == 0 && tries < 2000; tries++) {
                        ResultSet rows = other.createStatement().executeQuery(SLEEPERS);
                        rows.next();
                        asleep = rows.getInt(1);
                        Thread.sleep(10);
                    }
                    sleeping.cancel();
                } catch (Exception error) {
                    say(error);
                }
            });
            canceller.start();
            try {
                sleeping.executeQuery("select pg_sleep(30)");
            } catch (SQLException error) {
                say(error);
            }
            canceller.join();
            PreparedStatement timed = conn.prepareStatement("select pg_sleep(30)");
            timed.setQueryTimeout(1);
            try {
                timed.executeQuery();
            } catch (SQLException error) {
                say(error);
            }
            ResultSet rows = conn.createStatement().executeQuery("select 4");
            rows.next();
            say(rows.getInt(1));
        }
    }

    static void fifty() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(50);
        List<Future<Long>> answers = new ArrayList<>();
        for (int worker = 0; worker < 50; worker++) {
            int number = worker;
            Callable<Long> work = () -> {
                try (Connection conn = connect("prepareThreshold", String.valueOf(number % 3))) {
                    conn.setAutoCommit(false);
                    long sum = 0;
                    PreparedStatement statement = conn.prepareStatement("select ?::int + ?::int");
                    for (int round = 0; round < 10; round++) {
                        statement.setInt(1, number);
                        statement.setInt(2, round);
                        ResultSet rows = statement.executeQuery();
                        rows.next();
                        sum += rows.getInt(1);
                        conn.commit();
                    }
                    return sum;
                }
            };
            answers.add(threads.submit(work));
        }
        for (Future<Long> answer : answers) {
            say(answer.get());
        }
        threads.shutdown();
    }
}
