"""How methods look, in every figure and on every page; and colours that stand for a share."""

# Okabe and Ito's colours, which colour-blind people can tell apart; a method keeps its own in every figure.
_LOOK = {
    "joint": ("#000000", "."),
    "fsr-logit": ("#0072B2", "o"),
    "fsr-distill": ("#56B4E9", "s"),
    "fsr-logitlab": ("#009E73", "D"),
    "adam": ("#D55E00", "v"),
    "sgd": ("#E69F00", "^"),
    "ewc": ("#CC79A7", "P"),
    "icarl": ("#882255", "X"),
    "lwf": ("#999999", "<"),
    "hat": ("#6A51A3", ">"),
    "generative-replay": ("#8C6D31", "*"),
    # Beyond a dozen no eye tells all colours apart; those that are often shown together differ the most.
    "er": ("#117733", "h"),
    "er-ace": ("#44AA99", "p"),
    "der": ("#AA4499", "8"),
    "derpp": ("#332288", "s"),
    "agem": ("#B8860B", "o"),
    "gem": ("#7F3B08", "D"),
    "cls-er": ("#1B9E77", "v"),
    "gdumb": ("#666666", "^"),
    "fsr-refresh": ("#2166AC", "P"),
    "si": ("#CC6677", "X"),
    "mas": ("#E7298A", "<"),
    "imm": ("#A6761D", ">"),
    "wise": ("#66A61E", "*"),
    "cab": ("#7570B3", "h"),
    "den": ("#B2182B", "p"),
    "slda": ("#01665E", "8"),
    "ranpac": ("#8C510A", "o"),
}
_OTHERS = (("#5AAE61", "h"), ("#DDCC77", "p"), ("#542788", "8"))
# Paul Tol's, for what one method selects; random is how it selects elsewhere.
_SELECTIONS = {
    "random": ("#0072B2", "o"),
    "herding": ("#117733", "s"),
    "gradient": ("#999933", "D"),
    "influence": ("#CC6677", "v"),
    "influence+": ("#AA4499", "^"),
}

MARKERS = "os^vD<>PX*ph8"
"""by which lines of one colour are told apart"""
_DIMMEST = 0.55
"""the OKLab lightness below which a line is hard to see on a dark page"""


def look(method: str, all_methods: list[str]) -> tuple[str, str]:
    """Give a method's colour and marker; one without its own takes the next that is free among all methods shown."""
    if method in _LOOK:
        return _LOOK[method]
    others = [name for name in all_methods if name not in _LOOK]
    return _OTHERS[others.index(method) % len(_OTHERS)]


def other_marker(marker: str, place: int) -> str:
    """Give the marker of a line among those of one colour, of which the first has `marker`.

    >>> [other_marker("s", place) for place in range(3)]
    ['s', 'o', '^']
    """
    markers = [marker, *(other for other in MARKERS if other != marker)]
    return markers[place % len(markers)]


def selection_look(selection: str) -> tuple[str, str]:
    """Give the colour and marker of a selection."""
    return _SELECTIONS.get(selection, _OTHERS[-1])


def on_dark(colour: str) -> str:
    """Give the same hue for a dark page: lighter where it would not be seen there; black becomes white.

    >>> on_dark("#000000"), on_dark("#56B4E9")
    ('#ffffff', '#56b4e9')
    """
    lightness, a, b = _to_oklab(colour)
    if lightness < 0.01:
        return "#ffffff"
    return _from_oklab(max(lightness, _DIMMEST), a, b)


def blend(low: str, high: str, share: float) -> str:
    """Give the colour at `share` of the way from low to high, in OKLab: equal steps look equal.

    >>> blend("#ffffff", "#000000", 0.5)
    '#636363'
    """
    ends = zip(_to_oklab(low), _to_oklab(high))
    return _from_oklab(*(start + (end - start) * share for start, end in ends))


def _linear(colour: str) -> list[float]:
    """Give a colour's red, green and blue as shares of their light."""
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def _to_oklab(colour: str) -> tuple[float, float, float]:
    """Convert to Björn Ottosson's OKLab (2020)."""
    red, green, blue = _linear(colour)
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    medium = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


def _from_oklab(lightness: float, a: float, b: float) -> str:
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    channels = (12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055 for c in linear)
    return "#" + "".join(f"{round(255 * min(max(c, 0.0), 1.0)):02x}" for c in channels)
