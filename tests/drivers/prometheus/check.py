"""Reads a page of metrics as Prometheus' own Python client does, and strictly: every name once with HELP and TYPE,
every set of labels once, histograms that grow. Prints a line for each sample: name, labels as JSON, value."""

import json
import sys

from prometheus_client.parser import text_string_to_metric_families

text = sys.stdin.buffer.read().decode("utf-8")
names, samples = set(), set()
for family in text_string_to_metric_families(text):
    assert family.name not in names, f"{family.name} comes twice"
    names.add(family.name)
    assert family.documentation, f"{family.name} has no HELP"
    assert family.type in ("counter", "gauge", "histogram"), f"{family.name} is {family.type}"
    buckets = {}
    for sample in family.samples:
        key = (sample.name, tuple(sorted(sample.labels.items())))
        assert key not in samples, f"{key} comes twice"
        samples.add(key)
        if sample.name.endswith("_bucket"):
            own = {name: value for name, value in sample.labels.items() if name != "le"}
            series = buckets.setdefault(json.dumps(own, sort_keys=True), [])
            series.append((float(sample.labels["le"]), sample.value))
        print(sample.name, json.dumps(sample.labels, sort_keys=True), sample.value)
    for series in buckets.values():
        assert series == sorted(series), f"{family.name} has buckets that fall"
        assert series[-1][0] == float("inf"), f"{family.name} has no last bucket"
for line in text.splitlines():
    if line.startswith("# TYPE "):
        name = line.split(" ")[2].removesuffix("_total")
        assert name in names, f"{name} has a TYPE and no samples that were read"
