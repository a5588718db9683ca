"""Items with a time, whose distribution drifts as it passes: mails and flights. Nothing here needs torch.

Readers make columns of the contents of files; what has no time or no label is left out, and counted. Made-up files have
the same format as the real ones: to try commands, not methods.
"""

import csv
import io
import json
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.parser import Parser
from email.utils import parsedate_to_datetime
from functools import cache

import numpy as np

from selfreminder._base.errors import DataError
from selfreminder.data.archive import MOST_BYTES

LATE = 15
"""minutes of delay at arrival above which a flight is late"""
FLIGHT_NUMBERS = ("departure", "arrival", "distance")
"""columns of a flight that are numbers, beside the weather's"""
FLIGHT_CATEGORIES = ("carrier", "origin", "dest", "hour", "weekday")
WEATHER = ("temp", "dewp", "humid", "wind_speed", "precip", "pressure", "visib")
"""what was measured at the airport an hour before a flight was to depart"""
_GATHERED = datetime(2001, 1, 1, tzinfo=UTC), datetime(2003, 1, 1, tzinfo=UTC)
"""when SpamAssassin's mails were sent; a date outside of it was made up by its sender"""


@dataclass(frozen=True, eq=False)
class Dated:
    """Items in the order of their times."""

    columns: dict[str, np.ndarray]
    """one value an item: numbers, or text as objects"""
    labels: np.ndarray
    """(n,) int64, classes from 0"""
    times: np.ndarray
    """(n,) datetime64[s]"""
    skipped: dict[str, int]
    """how many items were left out, by the reason"""


def join_lines(*contents: bytes) -> bytes:
    """Join the contents of one-line files, as lines."""
    return b"".join(content.strip() + b"\n" for content in contents)


def unzip(content: bytes) -> bytes:
    """Give the only file of a zip."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            (entry,) = archive.infolist()
            if entry.file_size > MOST_BYTES:
                raise ValueError(f"{entry.file_size} bytes are too many")
            with archive.open(entry) as file:
                return file.read(entry.file_size + 1)
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"no zip of one file ({error})") from None


def read_mails(files: Sequence[bytes]) -> Dated:
    """Read mails, a JSON object in each line with its `group` and whole `text`: label 1 is spam; times are UTC.

    The headers are not columns, but for the subject: they say by which way a mail was gathered.
    """
    skipped: Counter[str] = Counter()
    found: list[tuple[datetime, str, str, int]] = []
    for number, line in enumerate(files[0].splitlines(), 1):
        try:
            entry = json.loads(line)
            group, text = str(entry["group"]), str(entry["text"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"line {number} is no mail ({type(error).__name__}: {error})") from None
        mail = Parser().parsestr(text)
        time = parse_date(mail["Date"])
        if time is None:
            skipped["no date that can be read"] += 1
        elif not _GATHERED[0] <= time < _GATHERED[1]:
            skipped["a date outside 2001 and 2002"] += 1
        else:
            found.append((time, str(mail["Subject"] or ""), _get_body(mail), int(group.startswith("spam"))))
    found.sort(key=lambda row: row[0])
    if not found:
        raise DataError("no mail has a date")
    times, subjects, bodies, labels = zip(*found)
    columns = {"subject": np.array(subjects, object), "body": np.array(bodies, object)}
    seconds = np.array([time.replace(tzinfo=None) for time in times], "datetime64[s]")
    return Dated(columns, np.array(labels, np.int64), seconds, dict(skipped))


def parse_date(header: object) -> datetime | None:
    """Parse the date of a mail, as UTC; None if it is none.

    >>> parse_date("Thu, 22 Aug 2002 18:26:25 +0700")
    datetime.datetime(2002, 8, 22, 11, 26, 25, tzinfo=datetime.timezone.utc)
    >>> parse_date("yesterday")
    """
    try:
        time = parsedate_to_datetime(str(header))
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def read_flights(files: Sequence[bytes]) -> Dated:
    """Read the files of flights and of the weather: label 1 is late; times are those of the airport's clock.

    A flight's columns are what is known an hour before it is to depart.
    """
    weather: dict[tuple[str, str], list[float]] = {}
    for row in _read_rows(files[1], ("origin", "time_hour", *WEATHER)):
        weather[row[0], row[1]] = [_to_number(value) for value in row[2:]]
    missing = [float("nan")] * len(WEATHER)
    skipped: Counter[str] = Counter()
    names = ("year", "month", "day", "sched_dep_time", "sched_arr_time", "arr_delay", "distance")
    found = []
    for row in _read_rows(files[0], (*names, "carrier", "origin", "dest", "time_hour")):
        delay, carrier, origin, dest, hour = row[5], *row[7:]
        if delay == "NA":
            skipped["it did not arrive, or somewhere else"] += 1
            continue
        try:
            day, weekday = _to_day(*row[:3])
            departure, arrival = _minutes(row[3]), _minutes(row[4])
            numbers = [departure, arrival, float(row[6]), *weather.get((origin, _hour_before(hour)), missing)]
            late = int(float(delay) > LATE)
        except ValueError as error:
            raise DataError(f"a row of flights has {error}") from None
        words = (carrier, origin, dest, str(int(departure) // 60), weekday)
        found.append((day + int(60 * departure), numbers, words, late))
    if not found:
        raise DataError("no flight arrived")
    found.sort(key=lambda row: row[0])
    times, numbers, words, labels = zip(*found)
    columns = dict(zip((*FLIGHT_NUMBERS, *WEATHER), np.array(numbers, np.float64).T))
    columns |= {name: np.array(values, object) for name, values in zip(FLIGHT_CATEGORIES, zip(*words))}
    return Dated(columns, np.array(labels, np.int64), np.array(times, "datetime64[s]"), dict(skipped))


def generate_mails(count: int = 1200) -> list[bytes]:
    """Make up the file of mails: words of two kinds, of which spam takes others as time passes."""
    random = np.random.default_rng(0)
    lines = []
    for item in range(count):
        share, spam = item / count, item % 2
        time = datetime(2002, 1, 1, tzinfo=UTC) + timedelta(days=360 * share)
        drift = int(40 * share)
        words = [f"word{k}" for k in random.integers(0, 60, 12)]
        words += [f"{'spam' if spam else 'ham'}{k + drift}" for k in random.integers(0, 20, 2)]
        head = f"Date: {time:%a, %d %b %Y %H:%M:%S +0000}\nSubject: {words[0]}\n\n"
        lines.append(json.dumps({"group": "spam-1" if spam else "easy-ham-1", "text": head + " ".join(words)}))
    return [("\n".join(lines) + "\n").encode()]


def generate_flights(per_month: int = 150) -> list[bytes]:
    """Make up the files of flights and weather: late are those at a time of day that moves with the months."""
    random = np.random.default_rng(0)
    names = "year,month,day,sched_dep_time,arr_delay,sched_arr_time,carrier,origin,dest,distance,time_hour"
    flights, weather = [names], [f"origin,time_hour,{','.join(WEATHER)}"]
    for month in range(1, 13):
        for day in random.integers(1, 29, per_month):
            hour, origin = int(random.integers(6, 22)), ("EWR", "JFK", "LGA")[random.integers(3)]
            late = (hour > 10 + month // 2) != (random.random() < 0.1)
            at, before = (f"2013-{month:02}-{day:02}T{each:02}:00:00Z" for each in (hour, hour - 1))
            flights.append(f"2013,{month},{day},{hour}30,{40 if late else -5},{hour + 2}10,UA,{origin},BOS,200,{at}")
            pressure = "NA" if day % 7 == 0 else 1012
            weather.append(f"{origin},{before},{10 * random.random():.1f},5,50,8,0,{pressure},10")
    return [("\n".join(lines) + "\n").encode() for lines in (flights, weather)]


def _get_body(mail: Message) -> str:
    """Give the text of all of a mail's parts that are text."""
    texts = []
    for part in mail.walk():
        if part.get_content_maintype() == "text":
            content = part.get_payload(decode=True)
            # Whatever encoding a mail says, or none: its words in ASCII are the same, and others stay apart.
            texts.append(content.decode("latin-1") if isinstance(content, bytes) else "")
    return "\n".join(texts)


def _read_rows(content: bytes, names: Sequence[str]) -> Iterator[list[str]]:
    """Read some columns of a CSV file."""
    rows = csv.reader(io.StringIO(content.decode("utf-8", errors="replace")))
    header = next(rows, [])
    if lacks := [name for name in names if name not in header]:
        raise DataError(f"the table has no column {', '.join(lacks)}")
    places = [header.index(name) for name in names]
    for row in rows:
        if len(row) != len(header):
            raise DataError(f"line {rows.line_num} has {len(row)} values, there are {len(header)} columns")
        yield [row[place] for place in places]


def _to_number(value: str) -> float:
    try:
        return float("nan") if value in ("NA", "") else float(value)
    except ValueError:
        raise DataError(f"'{value[:40]}' is no number") from None


def _minutes(clock: str) -> float:
    """Minutes of the day of a time such as 1730."""
    hours, minutes = divmod(int(clock), 100)
    return 60.0 * hours + minutes


@cache
def _to_day(year: str, month: str, day: str) -> tuple[int, str]:
    """Give a day's first second, counted from 1970, and its weekday."""
    date = datetime(int(year), int(month), int(day), tzinfo=UTC)
    return int(date.timestamp()), str(date.weekday())


@cache
def _hour_before(hour: str) -> str:
    return (datetime.fromisoformat(hour) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
