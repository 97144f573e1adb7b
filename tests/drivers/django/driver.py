"""Django's ORM over psycopg 3, with nested atomic blocks. With the argument `bind` the server binds the parameters."""

import datetime
import decimal
import os
import sys
import uuid

import django
from django.apps import AppConfig
from django.conf import settings



class Drivers(AppConfig):
    label = "drivers"
    path = os.path.dirname(os.path.abspath(__file__))


settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": os.environ["PGHOST"],
            "PORT": os.environ["PGPORT"],
            "NAME": os.environ["PGDATABASE"],
            "USER": os.environ["PGUSER"],
            "PASSWORD": os.environ["PGPASSWORD"],
            "OPTIONS": {"server_side_binding": "bind" in sys.argv},
        }
    },
    INSTALLED_APPS=["django.contrib.postgres", Drivers("drivers", sys.modules["__main__"])],
    USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
django.setup()

from django.contrib.postgres.fields import ArrayField, IntegerRangeField  # noqa: E402
from django.contrib.postgres.aggregates import ArrayAgg  # noqa: E402
from django.db import DatabaseError, IntegrityError, connection, models, transaction  # noqa: E402
from django.db.models import Count, F, Q, Sum, Window  # noqa: E402
from django.db.models.functions import Rank  # noqa: E402

import shared  # noqa: E402
from shared import say  # noqa: E402


class Shelf(models.Model):
    name = models.CharField(max_length=30, unique=True)

    class Meta:
        app_label = "drivers"


class Thing(models.Model):
    shelf = models.ForeignKey(Shelf, on_delete=models.CASCADE, related_name="things")
    number = models.IntegerField()
    price = models.DecimalField(max_digits=10, decimal_places=2)
    made = models.DateTimeField()
    day = models.DateField(null=True)
    ident = models.UUIDField()
    facts = models.JSONField()
    tags = ArrayField(models.TextField())
    span = IntegerRangeField()
    raw = models.BinaryField()
    flag = models.BooleanField(default=True)
    lasts = models.DurationField()

    class Meta:
        app_label = "drivers"


def thing(shelf, number):
    return Thing(
        shelf=shelf,
        number=number,
        price=decimal.Decimal("9.99"),
        made=datetime.datetime(2024, 2, 29, 12, 0, tzinfo=datetime.timezone.utc),
        ident=uuid.UUID(int=number),
        facts={"a": [number, None]},
        tags=["x", "y, z"],
        span=(number, number + 5),
        raw=bytes([number]),
        lasts=datetime.timedelta(days=1, microseconds=5),
    )


def schema():
    with connection.schema_editor() as editor:
        editor.create_model(Shelf)
        editor.create_model(Thing)
    say(sorted(connection.introspection.table_names()))


def models_():
    for name in ("one", "two", "three"):
        shelf = Shelf.objects.create(name=name)
        Thing.objects.bulk_create([thing(shelf, number) for number in range(20)])
    for row in Thing.objects.filter(Q(number__lt=2) | Q(number=19)).order_by("id").values():
        row["raw"] = bytes(row["raw"])
        say(row)
    say(list(Shelf.objects.annotate(n=Count("things"), s=Sum("things__number")).values_list("name", "n", "s").order_by("id")))
    say(Thing.objects.filter(facts__a__0__gt=17, tags__contains=["x"], span__contains=20).count())
    say(Thing.objects.filter(number=3).update(price=F("price") * 2))
    say(Thing.objects.aggregate(all=ArrayAgg("number", distinct=True)))
    ranked = Thing.objects.annotate(rank=Window(Rank(), partition_by="shelf", order_by="-number"))
    say(list(ranked.filter(rank=1).values_list("number", "rank")))
    say(Shelf.objects.get_or_create(name="one")[1], Shelf.objects.update_or_create(name="four")[1])
    say(sum(row.number for row in Thing.objects.iterator(chunk_size=7)))
    say(Shelf.objects.prefetch_related("things").get(name="two").things.first().facts)


def nested_atomic():
    for inner_fails, outer_fails in ((False, False), (True, False), (False, True), (True, True)):
        try:
            with transaction.atomic():
                Shelf.objects.create(name=f"outer {inner_fails}{outer_fails}")
                try:
                    with transaction.atomic():
                        Shelf.objects.create(name=f"inner {inner_fails}{outer_fails}")
                        with transaction.atomic():
                            Shelf.objects.create(name=f"innermost {inner_fails}{outer_fails}")
                        if inner_fails:
                            Shelf.objects.create(name="one")
                except IntegrityError as error:
                    say(type(error).__name__, error.__cause__.sqlstate)
                transaction.on_commit(lambda: say("committed"))
                if outer_fails:
                    raise DatabaseError("outer")
        except DatabaseError as error:
            say(error)
        say(list(Shelf.objects.filter(name__contains="er").order_by("id").values_list("name", flat=True)))
    with transaction.atomic():
        say(Shelf.objects.select_for_update().get(name="one").name)
    with transaction.atomic(durable=True):
        sid = transaction.savepoint()
        Shelf.objects.all().delete()
        transaction.savepoint_rollback(sid)
        say(Shelf.objects.count())


def errors():
    for statement in shared.errors():
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(statement)
        except DatabaseError as error:
            say(type(error).__name__, error.__cause__.sqlstate)
        say(Shelf.objects.exists())


def fifty():
    def work(number):
        try:
            total = 0
            for _ in range(5):
                with transaction.atomic():
                    total += Thing.objects.filter(number=number % 20).count()
                    with transaction.atomic():
                        total += Thing.objects.aggregate(s=Sum("number"))["s"] + number
            return total
        finally:
            connection.close()

    shared.fifty(work)


shared.main(schema, models_, nested_atomic, errors, fifty)
