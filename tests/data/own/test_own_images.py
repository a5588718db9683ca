"""Folders of images: every kind of PNG comes out as it is seen, and what cannot be read is named."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from selfreminder._base.errors import DataError
from selfreminder.data.own import UnknownClassError, read_own_data

RANDOM = np.random.default_rng(0)


def save(path: Path, pixels: np.ndarray, mode: str | None = None, **options) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(path, **options)


def colours(side: int = 8) -> np.ndarray:
    return RANDOM.integers(0, 256, (side, side, 3), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, count in {"cat": 3, "dog": 2}.items():
        for i in range(count):
            save(tmp_path / name / f"{i}.png", colours())
    return tmp_path


def test_class_folders_become_images_with_labels_and_paths(folder: Path):
    own = read_own_data(f"folder:{folder}")
    assert own.inputs["x"].shape == (5, 3, 8, 8)
    assert own.classes == ("cat", "dog")
    assert own.labels.tolist() == [0, 0, 0, 1, 1]
    assert own.columns["path"].tolist() == ["cat/0.png", "cat/1.png", "cat/2.png", "dog/0.png", "dog/1.png"]
    with Image.open(folder / "dog/1.png") as image:
        assert np.array_equal(own.inputs["x"][4].permute(1, 2, 0), np.asarray(image))
    assert read_own_data(folder).columns["path"].tolist() == own.columns["path"].tolist()


def test_rows_keep_everything_together(folder: Path):
    own = read_own_data(folder)
    part = own.rows(own.labels == 1)
    assert part.columns["path"].tolist() == ["dog/0.png", "dog/1.png"]
    assert part.labels.tolist() == [1, 1]
    assert part.inputs["x"].equal(own.inputs["x"][3:])
    assert len(own.rows(slice(0, 2))) == len(own.rows([4, 0])) == 2


def test_images_without_class_folders_have_no_labels(tmp_path: Path):
    save(tmp_path / "b.jpg", colours())
    save(tmp_path / "a.bmp", colours())
    own = read_own_data(tmp_path)
    assert own.labels is None
    assert own.classes is None
    assert own.columns["path"].tolist() == ["a.bmp", "b.jpg"]


def test_metadata_joins_by_path_or_by_name(folder: Path):
    (folder / "metadata.csv").write_text(
        "file_name,site,day,count\ncat/0.png,A,2024-01-31,3\ncat/1.png,B,2024-02-01,4\n2.png,B,2024-02-02,5\n"
        "dog/0.png,A,2024-02-03,6\n"
    )
    own = read_own_data(folder)
    assert own.columns["site"].tolist() == ["A", "B", "B", "A", ""]
    assert own.columns["day"][3] == np.datetime64("2024-02-03")
    assert np.isnat(own.columns["day"][4])
    assert own.columns["count"].tolist()[:4] == [3, 4, 5, 6]
    assert np.isnan(own.columns["count"][4])


def test_metadata_may_have_the_labels(tmp_path: Path):
    for i in range(3):
        save(tmp_path / f"{i}.png", colours())
    (tmp_path / "metadata.csv").write_text("file_name,label,kind\n0.png,dog,x\n1.png,cat,y\n2.png,dog,y\n")
    assert read_own_data(tmp_path).labels.tolist() == [1, 0, 1]
    own = read_own_data(tmp_path, label="kind")
    assert own.classes == ("x", "y")
    assert own.columns["label"].tolist() == ["dog", "cat", "dog"]
    with pytest.raises(DataError, match="did you mean 'kind'"):
        read_own_data(tmp_path, label="kinds")


def test_metadata_of_files_that_are_not_there_is_refused(folder: Path):
    (folder / "metadata.csv").write_text("file_name,site\ncat/7.png,A\n")
    with pytest.raises(DataError, match=r"1 files that are no images there, such as 'cat/7.png'"):
        read_own_data(folder)
    assert read_own_data(folder, skip_bad=True).columns["site"].tolist() == [""] * 5


# Kinds of images ------------------------------------------------------------------------------------------


def test_sixteen_bits_are_scaled_not_cut(tmp_path: Path):
    values = np.array([[0, 257, 32768, 65535]], np.uint16)
    save(tmp_path / "deep.png", values)
    own = read_own_data(tmp_path)
    assert own.inputs["x"].shape == (1, 1, 1, 4)
    assert own.inputs["x"].flatten().tolist() == [0, 1, 128, 255]


def test_palettes_are_looked_up(tmp_path: Path):
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[:2] = (250, 10, 30)
    Image.fromarray(pixels).quantize(4).save(tmp_path / "palette.png")
    own = read_own_data(tmp_path)
    assert np.array_equal(own.inputs["x"][0].permute(1, 2, 0), pixels)


def test_a_palette_of_greys_is_grey(tmp_path: Path):
    image = Image.fromarray(np.array([[0, 1]], np.uint8), mode=None).convert("P")
    image.putpalette([7, 7, 7, 200, 200, 200])
    image.save(tmp_path / "grey.png")
    assert read_own_data(tmp_path).inputs["x"].tolist() == [[[[7, 200]]]]


def test_what_is_transparent_is_white_in_grey_and_colour(tmp_path: Path):
    grey = np.array([[[50, 255], [50, 0]]], np.uint8)  # the second pixel's grey is not seen
    Image.fromarray(grey).save(tmp_path / "grey.png")
    own = read_own_data(tmp_path)
    assert own.inputs["x"].tolist() == [[[[50, 255]]]]
    colour = np.array([[[9, 8, 7, 255], [9, 8, 7, 0]]], np.uint8)
    Image.fromarray(colour).save(tmp_path / "colour.png")
    own = read_own_data(tmp_path)
    assert own.inputs["x"][0].flatten(1).T.tolist() == [[9, 8, 7], [255, 255, 255]]
    assert own.inputs["x"][1].flatten(1).T.tolist() == [[50, 50, 50], [255, 255, 255]]


def test_a_photo_stands_as_its_camera_says(tmp_path: Path):
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it clockwise
    save(tmp_path / "photo.jpg", pixels, quality=95, exif=exif)
    x = read_own_data(tmp_path).inputs["x"]
    assert x.shape == (1, 3, 16, 8)
    assert x[0, :, :7].min() > 240
    assert x[0, :, 9:].max() < 15


def test_grey_and_colour_together_are_colour_unless_asked(folder: Path):
    save(folder / "cat" / "grey.png", np.full((8, 8), 77, np.uint8))
    own = read_own_data(folder)
    assert own.inputs["x"].shape == (6, 3, 8, 8)
    assert own.inputs["x"][3].unique().tolist() == [77]
    assert read_own_data(folder, channels=1).inputs["x"].shape == (6, 1, 8, 8)


def test_size_scales_the_shorter_side_and_cuts_at_the_centre(tmp_path: Path):
    pixels = np.zeros((20, 60), np.uint8)
    pixels[:, 18:42] = 200
    save(tmp_path / "wide.png", pixels)
    save(tmp_path / "small.png", np.full((5, 5), 9, np.uint8))
    x = read_own_data(tmp_path, size=10).inputs["x"]
    assert x.shape == (2, 1, 10, 10)
    assert x[0].unique().tolist() == [9]
    assert x[1].unique().tolist() == [200]


def test_large_jpegs_are_near_what_decoding_them_whole_gives(tmp_path: Path):
    gradient = np.linspace(0, 255, 640, dtype=np.uint8)
    save(tmp_path / "a.jpg", np.broadcast_to(gradient, (640, 640)).copy(), quality=95)
    x = read_own_data(tmp_path, size=32).inputs["x"][0, 0].float()
    whole = gradient.reshape(32, 20).mean(1)
    assert np.abs(x.numpy() - whole).max() < 3


# Bad input ------------------------------------------------------------------------------------------------


def bomb(width: int, height: int) -> bytes:
    """A PNG of few bytes that claims to be huge."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


def test_unreadable_files_are_named_counted_and_skipped_if_asked(folder: Path):
    (folder / "cat" / "text.png").write_text("no image")
    whole = (folder / "dog" / "0.png").read_bytes()
    (folder / "dog" / "short.png").write_bytes(whole[: len(whole) // 2])
    (folder / "dog" / "bomb.png").write_bytes(bomb(60_000, 60_000))
    (folder / "dog" / "large.png").write_bytes(bomb(12_000, 10_000))
    with pytest.raises(DataError) as error:
        read_own_data(folder)
    text = str(error.value)
    assert "4 of 9 images cannot be read" in text  # one of them has a whole header
    assert "cat/text.png (no image of a known kind)" in text
    assert "dog/bomb.png" in text
    assert "dog/large.png (12000 x 10000 pixels" in text
    assert "skip_bad" in text
    assert "\n" not in text
    own = read_own_data(folder, skip_bad=True)
    assert own.labels.tolist() == [0, 0, 0, 1, 1]
    assert len(own.skipped) == 4
    assert any("dog/short.png" in reason for reason in own.skipped)
    for name in ("text", "short", "bomb", "large"):
        next(folder.rglob(f"{name}.png")).unlink()
    assert own.inputs["x"].equal(read_own_data(folder).inputs["x"])


def test_a_file_that_is_cut_short_is_named(folder: Path):
    whole = (folder / "dog" / "0.png").read_bytes()
    (folder / "dog" / "0.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"1 of 5 images cannot be read: dog/0.png \(.*truncated"):
        read_own_data(folder)


def test_different_sizes_are_refused_without_a_size(folder: Path):
    save(folder / "dog" / "wide.png", np.zeros((8, 12, 3), np.uint8))
    with pytest.raises(DataError, match=r"2 different sizes, such as 8 x 8 \(cat/0.png\) and 12 x 8 \(dog/wide.png\)"):
        read_own_data(folder)
    assert read_own_data(folder, size=8).inputs["x"].shape == (6, 3, 8, 8)


def test_an_empty_class_is_named(folder: Path):
    (folder / "bird").mkdir()
    with pytest.raises(DataError, match="class 'bird' is empty"):
        read_own_data(folder)
    (folder / "bird" / "x.png").write_text("no image")
    with pytest.raises(DataError, match="class 'bird' is empty, none of its images can be read"):
        read_own_data(folder, skip_bad=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "has no images"),
        (lambda folder: (folder / "a.heic").write_text(""), r"only other files \(1 of .heic\)"),
        (lambda folder: (folder / "cat").mkdir(), "has no images"),
    ],
)
def test_a_folder_without_images_says_what_is_there(tmp_path: Path, make, message: str):
    make(tmp_path)
    with pytest.raises(DataError, match=message):
        read_own_data(tmp_path)


def test_images_beside_class_folders_are_refused(folder: Path):
    save(folder / "loose.png", colours())
    with pytest.raises(DataError, match=r"1 images beside its class folders, such as loose.png"):
        read_own_data(folder)


def test_more_than_the_limit_is_refused_before_it_is_read(folder: Path):
    with pytest.raises(DataError, match=r"5 images of 1000 x 1000 would take 15 MB, more than the limit of 1 MB"):
        read_own_data(folder, size=1000, limit="1MB")


def test_a_class_that_is_not_known_says_how_to_grow(folder: Path):
    save(folder / "bird" / "0.png", colours())
    with pytest.raises(UnknownClassError, match=r"'bird' \(1 items\) not among the 2 known classes .*--grow") as error:
        read_own_data(folder, classes=["dog", "cat"])
    assert error.value.unknown == ("bird",)
    own = read_own_data(folder, classes=["dog", "cat"], grow=True)
    assert own.classes == ("dog", "cat", "bird")
    assert own.labels.tolist() == [2, 1, 1, 1, 0, 0]


def test_thirty_two_bits_are_refused(tmp_path: Path):
    save(tmp_path / "a.tiff", np.zeros((4, 4), np.float32))
    with pytest.raises(DataError, match="save it with 8 or 16 bits"):
        read_own_data(tmp_path)


def test_progress_ends_with_all(folder: Path):
    told = []
    read_own_data(folder, progress=lambda *what: told.append(what))
    assert told == [("images measured", 5, 5), ("images read", 5, 5)]


def test_all_that_cannot_be_read_are_counted(tmp_path: Path):
    """Also one that is cut short behind its header, where others are no images at all."""
    whole = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32), np.uint8)).save(whole, "PNG")
    contents = [whole.getvalue()] * 3 + [b"", b"no image", whole.getvalue()[:-500]]
    for index, content in enumerate(contents):
        (tmp_path / f"{index}.png").write_bytes(content)
    with pytest.raises(DataError, match=r"3 of 6 images cannot be read: 3\.png .*4\.png .*5\.png .*skip_bad"):
        read_own_data(f"folder:{tmp_path}")
    assert len(read_own_data(f"folder:{tmp_path}", skip_bad=True).skipped) == 3
