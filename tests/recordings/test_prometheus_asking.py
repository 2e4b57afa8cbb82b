"""How is a server asked, with which settings, and for what?"""

import re
import time
from pathlib import Path
from typing import Any

import pytest

import prometheus_server as world
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.params import Source, check_params
from buildcompare.recordings.prometheus import prometheus_client
from buildcompare.recordings.prometheus_client import LONG_QUERY
from buildcompare.recordings.sources import pull, record
from prometheus_server import BASE_START, LONG_START, Prometheus, Proxy
from pulling import TOKEN, at, bits, catalogue, raw, run, source


def test_a_long_query_goes_into_the_body(prometheus: Prometheus, proxy: Proxy) -> None:
    query = '{__name__=~"long|' + "|".join(f"other_{i}" for i in range(6_000)) + '"}'
    [series] = record(run(LONG_START, LONG_START + 600), source(proxy.url), catalogue(query)).series
    assert len(query) > 40 * LONG_QUERY
    assert prometheus.gives(series.values, prometheus.truth.at("long", series.times))
    [(path, body), *_] = [(path, body) for method, path, _, body in proxy.seen if method == "POST"]
    assert path == "/api/v1/query_range"
    assert len(body) > len(query)


def test_a_query_of_the_whole_window_is_never_asked_in_pieces(prometheus: Prometheus) -> None:
    window = run(LONG_START, LONG_START + 16 * 3_600)
    with pytest.raises(InputError, match=r"query of graph m0: .*at most 10,999 points .* has end\(\), found 11,521"):
        record(window, source(prometheus.url), catalogue("long - (long @ end())"))
    [series] = record(window, source(prometheus.url), catalogue("long{x!~'end()|/range(/.*)?'}")).series
    assert series.values.size == 11_521
    window = run(LONG_START + 600, LONG_START + 4_200)
    [series] = record(window, source(prometheus.url), catalogue("long @ Start ( )")).series
    assert series.values.size == 721


def test_the_client_library_asks_as_we_do(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROM_TOKEN", TOKEN)
    proxy.allowed = lambda headers: headers.get("Authorization") == f"Bearer {TOKEN}"
    login = source(proxy.url, auth={"bearer_token_env": "PROM_TOKEN"})
    with pytest.raises(InputError, match="near: `go_goroutines`"):
        record(run(), login, catalogue("go_gorutines"))
    clock = time.monotonic  # a recording's time limit ends with it
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 1_000)
    with prometheus_client(login) as client:
        assert "go_goroutines" in client.all_metrics(params={"start": LONG_START, "end": BASE_START})
        client._method = "POST"  # long queries go into the body, not into the address
        rows = client.custom_query_range("long", at(LONG_START), at(LONG_START + 60), "5")
    assert len(rows[0]["values"]) == 13
    assert proxy.seen[-1][:2] == ("POST", "/api/v1/query_range")
    assert {headers["Accept-Encoding"] for *_, headers, _ in proxy.seen} == {"identity"}


@pytest.mark.parametrize(("more", "wanted"), [({}, "identity"), ({"gzip": True}, "gzip")])
def test_compression_is_a_setting(proxy: Proxy, more: dict[str, Any], wanted: str) -> None:
    recording = record(run(), source(proxy.url, **more), catalogue("go_goroutines"))
    assert {headers["Accept-Encoding"] for *_, headers, _ in proxy.seen} == {wanted}
    direct = record(run(), source(proxy.url), catalogue("go_goroutines"))
    assert [bits(s.values) for s in recording.series] == [bits(s.values) for s in direct.series]


@pytest.mark.parametrize("way", ["bearer_token_env", "bearer_token_file", "basic", "headers_env"])
def test_ways_to_log_in(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setenv("PROM_TOKEN", TOKEN)
    monkeypatch.setenv("PROM_USER", "jürgen")
    (tmp_path / "token").write_text(TOKEN + "\n")
    bearer, basic = {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": "Basic asO8cmdlbjp0MGtlbi1vZi1ub2JvZHk="}
    keyed = {"X-Api-Key": TOKEN, "X-Scope-OrgID": "tenant 1"}
    settings, wanted = {
        "bearer_token_env": ({"auth": {"bearer_token_env": "PROM_TOKEN"}}, bearer),
        "bearer_token_file": ({"auth": {"bearer_token_file": str(tmp_path / "token")}}, bearer),
        "basic": ({"auth": {"username_env": "PROM_USER", "password_env": "PROM_TOKEN"}}, basic),
        "headers_env": ({"headers_env": {"X-Api-Key": "PROM_TOKEN"}, "headers": {"X-Scope-OrgID": "tenant 1"}}, keyed),
    }[way]
    proxy.allowed = lambda headers: wanted.items() <= headers.items()
    recording = record(run(), source(proxy.url, **settings), catalogue("go_goroutines"))
    assert len(recording.series) == 2
    assert TOKEN not in repr(recording.provenance)


def test_a_password_in_netrc_is_not_sent(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text(f"default login a password {TOKEN}\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    record(run(), source(proxy.url), catalogue("go_goroutines"))
    assert not any("Authorization" in headers for *_, headers, _ in proxy.seen)


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
@pytest.mark.parametrize("way", ["an authority of its own", "a client certificate", "unchecked"])
def test_ways_to_trust(way: str, prometheus: Prometheus, certificates: Path) -> None:
    tls: dict[str, Any] = {"verify": False} if way == "unchecked" else {"ca": f"{certificates}/ca.pem"}
    if way == "a client certificate":
        tls |= {"cert": f"{certificates}/cert.pem", "key": f"{certificates}/key.pem"}
    with world.proxying(prometheus.url, tls=world.tls_front(certificates, client="cert" in tls)) as proxy:
        recording = record(run(), source(proxy.url, tls=tls), catalogue("go_goroutines"))
    assert len(recording.series) == 2
    assert ["was not checked" in note.text for note in recording.notes] == [True] * (way == "unchecked")


BAD_SOURCES = [
    ({"url": f"http://me:{TOKEN}@h"}, "without credentials"),
    ({"url": f"http://h?token={TOKEN}"}, "without credentials"),
    ({"auth": TOKEN}, "keys with values"),
    ({"auth": {}}, "one of `bearer_token_env`"),
    ({"auth": {"bearer_token": TOKEN}}, "bearer_token_env"),
    ({"auth": {"bearer_token_env": TOKEN}}, "the name of an environment variable"),
    ({"auth": {"username_env": "A"}}, "together"),
    ({"auth": {"bearer_token_env": "A", "bearer_token_file": "b"}}, "one of"),
    ({"headers": {"Authorization": TOKEN}}, "no header that other settings decide"),
    ({"headers": {"X": TOKEN + "\n"}}, "printable ASCII"),
    ({"headers": {"X": 7}}, "text"),
    ({"headers": {"X": "a"}, "headers_env": {"x": "A"}}, "each header once"),
    ({"headers_env": {"X": TOKEN}}, "the name of an environment variable"),
    ({"tls": {"key": "k"}}, "`cert` beside `key`"),
    ({"tls": {"ca": "k", "verify": False}}, "`verify: true`"),
    ({"tls": {"verfy": False}}, "ca, cert, key, verify"),
    ({"step_s": 0}, "greater than"),
    ({"step_s": 0.0015}, "whole milliseconds"),
    ({"threads": 0}, "greater than"),
    ({"timeout_s": -1}, "greater than"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "expected"), BAD_SOURCES, ids=[str(i) for i in range(len(BAD_SOURCES))])
def test_a_fault_in_the_settings_is_named_without_secrets(more: dict[str, Any], expected: str) -> None:
    times = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-01T01:00:00Z"}
    test = {"name": "a", "type": "bounded", "base": times, "new": times}
    params = {"base": {"label": "a"}, "new": {"label": "b"}, "tests": [test]}
    with pytest.raises(InputError) as caught:
        check_params({**params, "source": {"kind": "prometheus", "url": "http://h", **more}})
    assert expected in caught.value.expected
    assert (caught.value.key or "").startswith("source")
    assert TOKEN not in str(caught.value)


def test_a_source_of_files_has_no_settings_of_servers() -> None:
    with pytest.raises(ValueError, match="no `threads` where kind is recorded"):
        Source.model_validate({"kind": "recorded", "threads": 2})


@pytest.mark.parametrize("name", ["mattermost", "postgresql"])
def test_a_server_takes_every_query_of_the_catalogues(prometheus: Prometheus, name: str) -> None:
    asked = read_catalogue(name).questions(label_step_s=2.5)
    assert len(asked) >= 12
    for question in asked:
        raw(prometheus.url, question.query, BASE_START, BASE_START + 60, 60)


EXPORTED = {
    "pg_stat_database": "numbackends xact_commit xact_rollback blks_read blks_hit tup_returned tup_fetched "
    "tup_inserted tup_updated tup_deleted conflicts temp_files temp_bytes deadlocks blk_read_time blk_write_time "
    "stats_reset active_time active_time_seconds_total",
    "pg_stat_activity": "count max_tx_duration",
    "pg_locks": "count",
}
"""By collector what postgres_exporter exports without options, read from its sources: collector/pg_stat_database.go,
collector/pg_locks.go and, for pg_stat_activity, cmd/postgres_exporter/queries.go; 0.11 counts `active_time` in
milliseconds."""


def test_the_postgresql_catalogue_asks_for_what_the_exporter_has() -> None:
    exported = {f"{collector}_{name}" for collector, names in EXPORTED.items() for name in names.split()}
    asked = [question.query for question in read_catalogue("postgresql").questions(label_step_s=60)]
    names = {name for query in asked for name in re.findall(r"\bpg_\w+", query)}
    assert len(names) >= 14
    own = {"pg_stat_statements_calls_total", "pg_stat_statements_seconds_total"}  # params/example/statements.yaml
    assert names <= exported | own


def test_the_source_says_over_how_long_rates_are(prometheus: Prometheus) -> None:
    queries = {each.metric: each.query for each in read_catalogue("postgresql").questions(label_step_s=5, rate_s=2.5)}
    assert queries["deadlocks"] == 'sum(rate(pg_stat_database_deadlocks{datname!~"template.*|postgres|"}[2500ms]))'
    assert "[1m]" not in str(queries)
    window = "2024-12-11T10:00:00Z", "2024-12-11T10:05:00Z"
    for asked, filled_in, rate_s in (("{rate}", "20s", 20.0), ("1m", "1m", None)):
        pulled = pull(prometheus.url, *window, catalogue=catalogue(f"sum(rate(up[{asked}])) or vector(1)"), rate_s=20.0)
        assert f"[{filled_in}]" in pulled.provenance["queries"][0]["query"]
        assert pulled.rate_s == rate_s, "what the catalogue leaves open, and nothing else"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("sum(up{{ap}})", r"a variable that `variables` has \(app\), found '{{ap}}'"),
        ("rate(up[{window}])", "only in queries of label tables"),
    ],
)
def test_an_unknown_variable_is_an_error(tmp_path: Path, query: str, words: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"variables: {{app: 'a=\"b\"'}}\nmetrics:\n  - {{name: A, slug: a, query: '{query}'}}\n")
    with pytest.raises(InputError, match=words):
        read_catalogue(str(file))
