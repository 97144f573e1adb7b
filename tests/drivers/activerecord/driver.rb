# Rails' ActiveRecord over pg: migrations, prepared statements of its own, nested transactions, advisory locks.

require "active_record"
require_relative "../shared/shared"

ActiveRecord::Base.establish_connection(
  adapter: "postgresql",
  host: ENV["PGHOST"], port: ENV["PGPORT"], username: ENV["PGUSER"], password: ENV["PGPASSWORD"],
  database: ENV["PGDATABASE"], sslmode: ENV["PGSSLMODE"], pool: CLIENTS, checkout_timeout: 60,
  prepared_statements: !ARGV.include?("unprepared"), statement_limit: 20,
)
ActiveRecord::Migration.verbose = false

class Shelf < ActiveRecord::Base
  has_many :things, dependent: :destroy
  validates :name, presence: true
end

class Thing < ActiveRecord::Base
  belongs_to :shelf, counter_cache: true
end

section("migrations") do
  # A migration takes an advisory lock on the session.
  class First < ActiveRecord::Migration[6.1]
    def change
      create_table(:shelves) { |t| t.string :name, index: { unique: true }; t.integer :things_count, default: 0 }
      create_table :things do |t|
        t.references :shelf, foreign_key: true
        t.integer :number
        t.decimal :price, precision: 10, scale: 2
        t.jsonb :facts, default: {}
        t.text :tags, array: true, default: []
        t.int4range :span
        t.uuid :ident
        t.binary :raw
        t.date :day
        t.datetime :made
        t.inet :address
      end
    end
  end
  conn = ActiveRecord::Base.connection
  p conn.get_advisory_lock(42)
  First.migrate(:up)
  p conn.release_advisory_lock(42)
  p conn.tables.sort, conn.columns("things").map { |column| [column.name, column.sql_type] }
  p conn.indexes("shelves").map(&:columns)
end

section("models") do
  3.times do |shelf|
    record = Shelf.create!(name: "shelf #{shelf}")
    5.times do |number|
      record.things.create!(
        number: number, price: "9.99", facts: { a: [number, nil] }, tags: ["x", "y, z"], span: number..number + 5,
        ident: format("00000000-0000-0000-0000-%012d", number), raw: "\x00\xFF".b, day: Date.new(2024, 2, 29),
        made: Time.utc(2024, 2, 29, 12), address: "10.0.0.#{number}",
      )
    end
  end
  Thing.order(:id).limit(3).each { |thing| p thing.attributes }
  p Shelf.joins(:things).group(:name).order(:name).sum(:number)
  p Thing.where("facts @> ?", { a: [3] }.to_json).count, Thing.where(number: [1, 2], shelf_id: 1..2).pluck(:number)
  Thing.insert_all((0...100).map { |number| { number: number + 100, shelf_id: 1 } })
  p Thing.where(number: 3).update_all("price = price * 2"), Thing.where("number > 150").delete_all
  p Thing.find_each(batch_size: 7).sum(&:number)
  p Shelf.includes(:things).order(:id).map { |shelf| shelf.things.size }
  30.times { |number| Thing.where(number: number).where("#{number} = #{number}").first }
end

section("transactions") do
  [[false, false], [true, false], [false, true], [true, true]].each do |inner_fails, outer_fails|
    begin
      Shelf.transaction do
        Shelf.create!(name: "outer #{inner_fails} #{outer_fails}")
        begin
          Shelf.transaction(requires_new: true) do
            Shelf.create!(name: "inner #{inner_fails} #{outer_fails}")
            Shelf.transaction(requires_new: true) { Shelf.create!(name: "innermost #{inner_fails} #{outer_fails}") }
            Shelf.create!(name: "shelf 1") if inner_fails
          end
        rescue ActiveRecord::RecordNotUnique => error
          puts error.message.lines.first
        end
        raise ActiveRecord::Rollback if outer_fails
      end
    end
    p Shelf.where("name like '%er%' or name like 'innermost%'").order(:id).pluck(:name)
  end
  Shelf.transaction(isolation: :serializable) { p Shelf.connection.select_value("show transaction_isolation") }
  Shelf.first.with_lock { p Shelf.lock.find(1).name }
end

section("errors") do
  errors.each do |text|
    begin
      ActiveRecord::Base.connection.execute(text)
    rescue ActiveRecord::StatementInvalid => error
      puts "#{error.class} #{error.message.lines.first}"
    end
    p Shelf.where(name: "shelf 1").count
  end
end

section("fifty") do
  fifty do |number|
    ActiveRecord::Base.connection_pool.with_connection do
      10.times.sum { |round| Thing.transaction { Thing.where(number: number % 5).count + number + round } }
    end
  end
end

ActiveRecord::Base.connection_pool.disconnect!
puts "== end"
