# Ruby's pg, a thin layer over libpq: text and binary results, single-row mode, pipelines.

require "pg"
require_relative "../shared/shared"

def connect = PG.connect

def show(error)
  result = error.result
  fields = [PG::PG_DIAG_SQLSTATE, PG::PG_DIAG_MESSAGE_PRIMARY, PG::PG_DIAG_MESSAGE_DETAIL, PG::PG_DIAG_MESSAGE_HINT]
  p(fields.map { |field| result&.error_field(field) })
end

section("types") do
  conn = connect
  conn.type_map_for_results = PG::BasicTypeMapForResults.new(conn) if ARGV.include?("mapped")
  types.each do |name, value|
    p [name, conn.exec("select #{literal(name, value)}").values]
    [0, 1].each do |format|
      result = conn.exec_params("select $1::#{name}, null::#{name}", [value], format)
      p [name, result.fformat(0), result.ftype(0) < 16384, result.values]
    end
  end
end

section("statements") do
  conn = connect
  30.times { |number| conn.prepare("s#{number}", "select $1::int * #{number}") }
  p(30.times.sum { |number| conn.exec_prepared("s#{number}", [number]).getvalue(0, 0).to_i })
  p conn.describe_prepared("s1").paramtype(0)
  conn.exec("deallocate s1")
  begin
    conn.exec_prepared("s1", [1])
  rescue PG::Error => error
    show(error)
  end
  conn.exec("select 1; select 2").each { |row| p row }
  conn.send_query("select generate_series(1, 1000)")
  conn.set_single_row_mode
  count = 0
  conn.get_result.stream_each { count += 1 }
  p count
  conn.get_last_result
end

section("pipeline") do
  conn = connect
  conn.enter_pipeline_mode
  6.times do |batch|
    conn.send_query_params("select $1::int", [batch])
    conn.send_query_params("select 1 / $1::int", [batch % 2])
    conn.send_query_params("select 'last'", [])
    conn.pipeline_sync
  end
  synced = 0
  while synced < 6
    result = conn.get_result or next
    status = result.result_status
    synced += 1 if status == PG::PGRES_PIPELINE_SYNC
    p [result.res_status(status), status == PG::PGRES_TUPLES_OK ? result.values : result.error_field(PG::PG_DIAG_SQLSTATE)]
  end
  conn.exit_pipeline_mode
  p conn.exec("select 1").values
end

section("transactions") do
  conn = connect
  conn.exec("create table rpg(a int primary key, b text)")
  begin
    conn.transaction do
      conn.exec("insert into rpg values (1, 'one')")
      conn.exec("savepoint s")
      begin
        conn.exec("insert into rpg values (1, 'again')")
      rescue PG::UniqueViolation => error
        show(error)
        p conn.transaction_status
      end
      conn.exec("rollback to s")
      conn.exec("insert into rpg values (2, 'two')")
    end
    conn.transaction do
      conn.exec("delete from rpg")
      raise "given up"
    end
  rescue RuntimeError => error
    p error.message
  end
  p conn.exec("select * from rpg order by a").values
end

section("copies") do
  conn = connect
  result = conn.copy_data("copy rpg from stdin") { 2000.times { |number| conn.put_copy_data("#{number + 10}\trow #{number}\n") } }
  p result.cmd_tuples
  length = 0
  conn.copy_data("copy (select * from rpg order by a) to stdout") do
    while (row = conn.get_copy_data)
      length += row.bytesize
    end
  end
  p length
  begin
    conn.copy_data("copy rpg from stdin") { 100.times { conn.put_copy_data("no number\tx\n") } }
  rescue PG::Error => error
    show(error)
  end
  begin
    conn.copy_data("copy rpg from stdin") { raise "given up" }
  rescue RuntimeError => error
    p error.message
  end
  p conn.exec("select count(*) from rpg").values
end

section("notifications") do
  listener, sender = connect, connect
  listener.exec("listen rpgn")
  sender.exec("notify rpgn, 'one'")
  sender.exec_params("select pg_notify('rpgn', $1)", ["two"])
  2.times { listener.wait_for_notify(20) { |channel, _pid, payload| p [channel, payload] } }
  [listener, sender].each(&:close)
end

section("large objects") do
  conn = connect
  conn.transaction do
    oid = conn.lo_creat
    object = conn.lo_open(oid, PG::INV_READ | PG::INV_WRITE)
    p conn.lo_write(object, "0123456789" * 20000)
    conn.lo_lseek(object, 199_995, PG::SEEK_SET)
    p conn.lo_read(object, 100)
    conn.lo_close(object)
    conn.lo_unlink(oid)
  end
end

section("errors") do
  conn = connect
  conn.set_notice_processor { |message| puts message }
  errors.each do |text|
    [-> { conn.exec(text) }, -> { conn.exec_params(text, []) }, -> { conn.prepare("p", text) }].each do |run|
      begin
        run.call
      rescue PG::Error => error
        show(error)
      end
      p conn.exec_params("select $1::int", [3]).values
    end
    conn.exec("deallocate all")
  end
  conn.exec("do $$ begin raise warning 'be warned'; end $$")
end

section("cancels") do
  conn, other = connect, connect
  thread = when_asleep(->(text) { other.exec(text).getvalue(0, 0) }, -> { conn.cancel })
  begin
    conn.exec("select pg_sleep(30)")
  rescue PG::QueryCanceled => error
    show(error)
  end
  thread.join
  p conn.exec("select 4").values
end

section("fifty") do
  fifty do |number|
    conn = connect
    conn.prepare("sum", "select $1::int + $2::int")
    sum = 10.times.sum do |round|
      conn.transaction { conn.exec_prepared("sum", [number, round]).getvalue(0, 0).to_i }
    end
    conn.close
    sum
  end
end

puts "== end"
