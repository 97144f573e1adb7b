"""SQLAlchemy over psycopg and pg8000 by its pool, and over asyncpg by its asynchronous engine."""

import asyncio
import datetime
import decimal
import os

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, selectinload

import shared
from shared import say


def url(driver):
    return sa.URL.create(
        f"postgresql+{driver}",
        os.environ["PGUSER"],
        os.environ["PGPASSWORD"],
        os.environ["PGHOST"],
        int(os.environ["PGPORT"]),
        os.environ["PGDATABASE"],
    )


def options(driver):
    """What the driver does not read from the environment by itself."""
    return {"ssl_context": shared.tls()} if driver == "pg8000" else {}


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(50), unique=True)
    born: Mapped[datetime.date | None]
    facts: Mapped[dict] = mapped_column(postgresql.JSONB)
    tags: Mapped[list] = mapped_column(postgresql.ARRAY(sa.Text))
    wage: Mapped[decimal.Decimal] = mapped_column(sa.Numeric(12, 2))
    books: Mapped[list["Book"]] = relationship(back_populates="author", cascade="all, delete-orphan")


class Book(Base):
    __tablename__ = "book"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    author_id: Mapped[int] = mapped_column(sa.ForeignKey("author.id"))
    author: Mapped[Author] = relationship(back_populates="books")


def author(number):
    return Author(
        name=f"author {number}",
        born=datetime.date(1900 + number, 1, 1),
        facts={"number": number, "nested": [1, None]},
        tags=["a", f"b{number}"],
        wage=decimal.Decimal("1234.50"),
        books=[Book(title=f"book {number}.{book}") for book in range(3)],
    )


def show(session):
    for row in session.scalars(sa.select(Author).options(selectinload(Author.books)).order_by(Author.id)):
        say(row.id, row.name, row.born, row.facts, row.tags, row.wage, sorted(book.title for book in row.books))


def one_driver(driver):
    say("--", driver)
    engine = sa.create_engine(
        url(driver), pool_size=3, max_overflow=0, pool_pre_ping=True, connect_args=options(driver)
    )
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    say(sorted(column["name"] for column in sa.inspect(engine).get_columns("author")))
    say([str(index["name"]) for index in sa.inspect(engine).get_unique_constraints("author")])
    with Session(engine) as session:
        session.add_all(author(number) for number in range(20))
        session.commit()
        with session.begin_nested():
            session.add(author(100))
        try:
            with session.begin_nested():
                session.add(author(1))
        except sa.exc.IntegrityError as error:
            say(type(error.orig).__name__)
        session.execute(sa.update(Author).where(Author.id < 3).values(name=Author.name + "!"))
        session.delete(session.get(Author, 5))
        session.commit()
        show(session)
        session.rollback()
    with engine.connect() as conn:
        for level in ("SERIALIZABLE", "READ COMMITTED", "AUTOCOMMIT"):
            say(conn.execution_options(isolation_level=level).exec_driver_sql("show transaction_isolation").scalar())
            conn.rollback()
        if driver == "psycopg":
            rows = conn.execution_options(stream_results=True, yield_per=100, isolation_level="READ COMMITTED")
            say(sum(rows.execute(sa.text("select generate_series(1, 1000)")).scalars()))
    for statement in shared.errors():
        try:
            with engine.begin() as conn:
                conn.exec_driver_sql(statement)
        except sa.exc.DBAPIError as error:
            say(type(error).__name__)
    engine.dispose()


def psycopg():
    one_driver("psycopg")


def pg8000():
    one_driver("pg8000")


def asyncpg():
    async def run():
        engine = create_async_engine(url("asyncpg"), pool_size=3)
        async with engine.begin() as conn:
            await conn.run_sync(Base.metadata.drop_all)
            await conn.run_sync(Base.metadata.create_all)
        async with AsyncSession(engine) as session:
            session.add_all(author(number) for number in range(5))
            await session.commit()
            try:
                async with session.begin_nested():
                    session.add(author(1))
            except sa.exc.IntegrityError as error:
                say(error.orig.sqlstate)
            await session.run_sync(show)
        await engine.dispose()

    asyncio.run(run())


def fifty():
    engine = sa.create_engine(url("psycopg"), pool_size=shared.CLIENTS)

    def work(number):
        total = 0
        for round_ in range(10):
            with engine.begin() as conn:
                total += conn.execute(sa.select(sa.literal(number) + round_)).scalar()
        return total

    shared.fifty(work)
    engine.dispose()


shared.main(psycopg, pg8000, asyncpg, fifty)
