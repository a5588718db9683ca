"""Mails and flights: made files of the same format, through the same sources as the real ones."""

import hashlib
import io
import json
import tarfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch

from selfreminder import data
from selfreminder._base.errors import DataError, SelfReminderError
from selfreminder.benchmarks import make_stream
from selfreminder.benchmarks.flights import encode_flights
from selfreminder.benchmarks.rotated_mnist import turn
from selfreminder.benchmarks.stream import StreamSpec
from selfreminder.data import source
from selfreminder.data.dated import generate_flights, join_lines, parse_date, read_flights, read_mails, unzip
from selfreminder.data.source import DataFile, DataSet, Form
from tests.data.test_data import contents, fake_npm
from tests.data.test_data import mirror as mirror

MAIL = "Date: {}\nSubject: {}\n\n{}\n"


def mail(date: str, subject: str = "hello", group: str = "easy-ham-1", text: str = "words") -> bytes:
    return json.dumps({"group": group, "text": MAIL.format(date, subject, text)}).encode()


def test_mails_are_in_the_order_of_their_dates_and_those_without_are_counted() -> None:
    late, early = "Thu, 22 Aug 2002 18:26:25 +0700", "Thu, 22 Aug 2002 08:26:25 -0200"
    lines = [
        mail(late, "b", "spam-2"),
        mail("soon"),
        mail(early, "a"),
        mail("Mon, 1 Jan 2029 00:00:00 +0000"),
        json.dumps({"group": "spam-1", "text": "no headers"}).encode(),
    ]
    found = read_mails([join_lines(*lines)])
    assert found.columns["subject"].tolist() == ["a", "b"]
    assert found.labels.tolist() == [0, 1]
    assert found.times.astype("M8[h]").astype(str).tolist() == ["2002-08-22T10", "2002-08-22T11"]
    assert found.skipped == {"no date that can be read": 2, "a date outside 2001 and 2002": 1}


@pytest.mark.parametrize("header", ["", "None", "Fri, 99 Foo 2002", "Thu, 22 Aug 99999 18:26:25 +0700", "0" * 500])
def test_a_date_that_is_none(header: str) -> None:
    assert parse_date(header) is None


def test_a_date_without_a_zone_is_utc() -> None:
    assert parse_date("Thu, 22 Aug 2002 18:26:25") == datetime(2002, 8, 22, 18, 26, 25, tzinfo=UTC)


def test_the_text_of_a_mail_is_decoded() -> None:
    head = "Date: Thu, 22 Aug 2002 18:26:25 +0000\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\n\n"
    line = json.dumps({"group": "spam-1", "text": head + "YnV5IG5vdw==\n"}).encode()
    assert read_mails([line]).columns["body"].tolist() == ["buy now"]


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"group": "spam-1"}'])
def test_a_line_that_is_no_mail_is_named(line: bytes) -> None:
    with pytest.raises(DataError, match="line 2 is no mail"):
        read_mails([join_lines(mail("Thu, 22 Aug 2002 18:26:25 +0000"), line)])


HEAD = "year,month,day,dep_time,sched_dep_time,arr_delay,sched_arr_time,carrier,origin,dest,distance,time_hour\n"
WEATHER_HEAD = "origin,time_hour,temp,dewp,humid,wind_speed,precip,pressure,visib\n"


def test_a_flight_has_the_weather_of_the_hour_before() -> None:
    flights = HEAD + (
        "2013,2,1,600,600,16,730,UA,EWR,IAH,1400,2013-02-01T11:00:00Z\n"
        "2013,1,1,515,515,15,819,UA,EWR,IAH,1400,2013-01-01T10:00:00Z\n"
        "2013,1,2,NA,600,NA,730,AA,JFK,MIA,1089,2013-01-02T11:00:00Z\n"
    )
    weather = WEATHER_HEAD + "EWR,2013-01-01T09:00:00Z,39,26,59,10,0,NA,10\nEWR,2013-01-01T10:00:00Z,1,1,1,1,1,1,1\n"
    found = read_flights([flights.encode(), weather.encode()])
    assert found.times.astype(str).tolist() == ["2013-01-01T05:15:00", "2013-02-01T06:00:00"]
    assert found.labels.tolist() == [0, 1]  # 15 minutes are not late
    assert found.columns["temp"][0] == 39
    assert np.isnan(found.columns["pressure"][0]) and np.isnan(found.columns["temp"][1])
    assert found.columns["departure"].tolist() == [315, 360]
    assert found.skipped == {"it did not arrive, or somewhere else": 1}


@pytest.mark.parametrize(
    ("flights", "message"),
    [
        ("year,month\n", "no column day"),
        (HEAD + "2013,1\n", "line 2 has 2 values"),
        (HEAD + "2013,13,1,1,1,1,1,UA,EWR,IAH,1,2013-01-01T10:00:00Z\n", "month must be in"),
        (HEAD, "no flight arrived"),
    ],
)
def test_a_table_of_flights_that_is_none(flights: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_flights([flights.encode(), WEATHER_HEAD.encode()])


def test_only_the_first_month_scales_the_numbers() -> None:
    flights = read_flights(generate_flights())
    january = np.arange(150)
    x = encode_flights(flights, january, 192)
    assert x.shape == (1800, 192)
    torch.testing.assert_close(x[:150, :1].mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    assert x[150:, 0].mean().abs() > 1e-3
    assert set(x[:, 10:].unique().tolist()) == {0.0, 1.0}
    with pytest.raises(DataError, match="the most is 20"):
        encode_flights(flights, january, 20)


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def test_a_zip_of_one_file() -> None:
    assert unzip(zipped(a=b"content")) == b"content"
    for bad in (b"no zip", zipped(a=b"", b=b""), zipped(a=b"content")[:-30]):
        with pytest.raises(DataError, match="no zip of one file"):
            unzip(bad)


def made(content: bytes, form: Form, **where: object) -> DataSet:
    file = DataFile("all", hashlib.sha256(content).hexdigest(), (form,))
    return DataSet(name="made", summary="", files=(file,), **where)


def test_all_members_that_match_make_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_npm(tmp_path / "bin", monkeypatch, {"y/2.json": b"second\n", "x/1.json": b"first", "x/1.txt": b"other"})
    content = b"first\nsecond\n"
    where = made(content, Form((), join_lines, pattern="package/data/*/*.json"), npm="made@1.0.0")
    assert contents(source.get(where), where) == {"all": content}


@pytest.fixture
def index(mirror: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a package index, to which pip is set."""
    folder, address = mirror
    monkeypatch.setenv("PIP_INDEX_URL", f"{address}simple/")
    (folder / "simple" / "made").mkdir(parents=True)
    return folder


def test_an_archive_of_a_package_index(index: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("made-1.0/data/all.zip")
        content = zipped(all=b"content")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    (index / "made-1.0.tar.gz").write_bytes(buffer.getvalue())
    links = '<a href="../../made-0.9.tar.gz">old</a><a href="../../made-1.0.tar.gz#sha256=00">made-1.0.tar.gz</a>'
    (index / "simple" / "made" / "index.html").write_text(links)
    where = made(b"content", Form(("made-1.0/data/all.zip",), unzip), pypi="made", archives=("made-1.0.tar.gz",))
    assert contents(source.get(where), where) == {"all": b"content"}


def test_a_package_index_without_the_archive(index: Path) -> None:
    (index / "simple" / "made" / "index.html").write_text("<a href='made-0.9.tar.gz'>old</a>")
    where = made(b"content", Form(("made-1.0/all",)), pypi="made", archives=("made-1.0.tar.gz",))
    with pytest.raises(DataError, match=r"lists no made-1\.0\.tar\.gz"):
        source.get(where)


def test_images_and_items_with_a_time_are_not_taken_for_each_other() -> None:
    with pytest.raises(DataError, match="has no images"):
        data.load("generated-mails")
    with pytest.raises(DataError, match="without a time"):
        data.load_dated("generated-10")


def test_periods_follow_each_other() -> None:
    stream = make_stream("flights", StreamSpec(data="generated-flights", tasks=12))
    assert [task.name for task in stream] == [f"flights of 2013-{month:02}" for month in range(1, 13)]
    parts = stream[3].parts
    assert len(parts.train) + len(parts.validation) + len(parts.test) == 150
    fewer = make_stream("flights", StreamSpec(data="generated-flights", tasks=2, images=600))[1].parts
    assert len(fewer.train) + len(fewer.validation) == 50
    after = make_stream("flights", StreamSpec(data="generated-flights", tasks=12, test_after=True, seed=1))[3].parts
    before = make_stream("flights", StreamSpec(data="generated-flights", tasks=12, test_after=True))[3].parts
    assert torch.equal(after.test.x, before.test.x) and len(after.test) == 30  # the same for all seeds
    with pytest.raises(SelfReminderError, match="there are 12 periods"):
        make_stream("flights", StreamSpec(data="generated-flights", tasks=13))
    with pytest.raises(SelfReminderError, match="lacks a class: take more items"):
        _ = make_stream("flights", StreamSpec(data="generated-flights", tasks=2, images=24))[0]


def test_turned_images() -> None:
    x = torch.rand(3, 28, 28)
    torch.testing.assert_close(turn(x, 0), x, atol=1e-5, rtol=0)
    torch.testing.assert_close(turn(x, 90), torch.rot90(x, 1, (1, 2)), atol=1e-4, rtol=0)
    torch.testing.assert_close(turn(x, 180), torch.rot90(x, 2, (1, 2)), atol=1e-4, rtol=0)
