# What the Ruby drivers share: the lists of types and errors, and fifty clients at once.

$stdout.sync = true
HERE = __dir__
CLIENTS = 50
SLEEPERS = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"

def lines(name)
  File.readlines(File.join(HERE, name), chomp: true, encoding: "UTF-8")
end

# Pairs of a type and a value of it as text.
def types
  lines("types.txt").map { |line| line.split("\t", 2) }
end

def errors
  lines("errors.txt")
end

def literal(name, value)
  "'#{value.gsub("'", "''")}'::#{name}"
end

def section(name)
  puts "== #{name}"
  yield
end

# Starts a thread that acts when `count` says that the query to be cancelled runs.
def when_asleep(count, act)
  Thread.new do
    2000.times do
      break if count.call(SLEEPERS).to_i > 0
      sleep 0.01
    end
    act.call
  end
end

# Shows what fifty threads answer.
def fifty
  threads = (0...CLIENTS).map do |number|
    Thread.new { yield number rescue $!.inspect }
  end
  threads.each_with_index { |thread, number| puts "#{number} #{thread.value}" }
end
