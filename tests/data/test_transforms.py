"""Transforms of pictures: against plain NumPy and Pillow; what moves with them; where their numbers come from."""

import numpy as np
import pytest

import weft as wf
import weft.data as data
from weft import _core
from weft.data import images
from weft.data import transforms as T


def picture(h=24, w=32, c=3, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (h, w, c), np.uint8)


def smooth(h=48, w=64):
    y, x = np.mgrid[:h, :w]
    return np.stack([y * 5, x * 3, 255 - y - x], -1).astype(np.uint8)


RANDOM = [
    T.RandomCrop(16),
    T.RandomCrop(20, padding=4, fill=(1, 2, 3)),
    T.RandomResizedCrop((12, 20)),
    T.RandomHorizontalFlip(),
    T.RandomVerticalFlip(),
    T.RandomRotation(30),
    T.RandomShear(20),
    T.RandomAffine(10, 0.1, (0.8, 1.2), 5),
    T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    T.Lighting(1.0),
    T.Grayscale(0.5),
    T.GaussianNoise(5.0),
    T.RandomErasing(0.9),
    T.RandomErasing(1.0, fill="random"),
    T.Normalize(crop=(16, 16), mirror=0.5),
    T.RandAugment(3, 15),
    T.RandomApply(T.RandomVerticalFlip(1.0)),
    T.RandomChoice([T.Resize(5), T.CenterCrop(5)]),
]
IDS = [f"{type(each).__name__}-{k}" for k, each in enumerate(RANDOM)]


class Pictures(data.Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 12

    def __getitem__(self, k):
        return self.transform(picture(seed=k)), k


@pytest.mark.parametrize("transform", RANDOM, ids=IDS)
def test_what_is_random_follows_seed_epoch_and_index(transform):
    def epochs(seed, **options):
        with data.DataLoader(Pictures(transform), batch_size=1, shuffle=True, seed=seed, **options) as loader:
            return [{int(k): x.numpy().tobytes() for x, k in loader} for _ in range(2)]

    want = epochs(1)
    assert epochs(1, num_workers=3) == want
    assert want[0] != want[1]
    assert epochs(2)[0] != want[0]


@pytest.mark.parametrize("transform", RANDOM, ids=IDS)
def test_the_source_does_not_change(transform):
    source = picture()
    source.flags.writeable = False
    want = source.copy()
    for seed in range(5):
        wf.random.seed(seed)
        transform(source)
    np.testing.assert_array_equal(source, want)


def test_alone_they_follow_the_framework():
    transform = T.RandomCrop(4)
    wf.random.seed(3)
    first = [transform(picture()).tobytes() for _ in range(5)]
    wf.random.seed(3)
    assert [transform(picture()).tobytes() for _ in range(5)] == first
    assert len(set(first)) > 1


@pytest.mark.parametrize("filter", ["area", "cubic"])
@pytest.mark.parametrize("size", [(24, 32), (10, 70), (61, 9), (48, 64), (1, 1)])
def test_resize_against_pillow(filter, size):
    Image = pytest.importorskip("PIL.Image")
    kind = {"area": Image.Resampling.BILINEAR, "cubic": Image.Resampling.BICUBIC}[filter]
    for source in (smooth(), picture(48, 64)):
        wide = Image.fromarray(source).resize((size[1], 48), kind)  # in this order; each pass rounds
        want = np.asarray(wide.resize(size[::-1], kind)).astype(int)
        assert np.abs(images.resize(source, size, filter) - want).max() <= 1


def test_resize_of_two_by_two_pixels_and_nearest():
    source = np.array([[0, 100], [200, 40]], np.uint8)[:, :, None]
    want = [[0, 25, 75, 100], [50, 59, 76, 85], [150, 126, 79, 55], [200, 160, 80, 40]]
    found = images.resize(source, (4, 4), "linear")[:, :, 0]
    assert np.abs(found.astype(int) - want).max() <= 1
    np.testing.assert_array_equal(
        images.resize(source, (4, 4), "nearest")[:, :, 0], source[:, :, 0].repeat(2, 0).repeat(2, 1)
    )
    big = picture(40, 40)
    np.testing.assert_array_equal(images.resize(big, (10, 10), "nearest"), big[2::4, 2::4])


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("filter", images.FILTERS)
def test_one_colour_stays_one_colour(channels, filter):
    source = np.full((13, 7, channels), 201, np.uint8)
    for size in ((5, 5), (40, 3)):
        assert (images.resize(source, size, filter) == 201).all()


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("width", [1, 15, 16, 17, 48, 50])
@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("planar", [False, True])
def test_normalize_against_numpy(channels, width, mirror, planar):
    source = picture(9, 60, channels)
    mean, factor = (
        np.arange(channels, dtype=np.float32) + 100,
        np.float32(0.5) / (1 + np.arange(channels, dtype="f")),
    )
    out = np.empty((channels, 5, width) if planar else (5, width, channels), np.float32)
    _core.image_normalize(source, out, 2, 3, mirror, mean, factor, planar)
    want = (source[2:7, 3 : 3 + width].astype(np.float32) - mean) * factor
    want = want[:, ::-1] if mirror else want
    np.testing.assert_allclose(out, want.transpose(2, 0, 1) if planar else want, rtol=1e-6, atol=1e-6)


def test_crops_and_flips():
    source = picture()
    np.testing.assert_array_equal(T.CenterCrop((10, 12))(source), source[7:17, 10:22])
    np.testing.assert_array_equal(T.RandomHorizontalFlip(1.0)(source), source[:, ::-1])
    np.testing.assert_array_equal(T.RandomVerticalFlip(1.0)(source), source[::-1])
    padded = T.Pad((1, 2, 3, 4), fill=9)(source)
    np.testing.assert_array_equal(padded[1:-2, 3:-4], source)
    assert padded[0, 0, 0] == 9
    found = {T.RandomCrop(20)(source).tobytes() for _ in range(200)}
    assert found <= {source[y : y + 20, x : x + 20].tobytes() for y in range(5) for x in range(13)}
    assert len(found) > 40
    for transform in (T.CenterCrop(25), T.RandomCrop(25), T.Normalize(crop=(25, 2))):
        with pytest.raises(ValueError, match="the picture is 24 x 32"):
            transform(source)


def test_affine_with_nothing_to_do_and_a_quarter_turn():
    source = picture(21, 21)
    np.testing.assert_array_equal(T.RandomAffine()(source), source)
    found = T.RandomRotation((90, 90), "nearest")(source)
    assert np.array_equal(found, np.rot90(source)) or np.array_equal(found, np.rot90(source, -1))


def test_color_jitter_is_one_matrix():
    source = smooth()
    brighter = T.ColorJitter(brightness=(1.5, 1.5))(source)
    assert np.abs(brighter.astype(int) - np.clip(source * 1.5, 0, 255)).max() <= 1
    grey = T.ColorJitter(saturation=(0, 0))(source).astype(int)
    assert np.abs(grey - (source @ [0.299, 0.587, 0.114])[:, :, None]).max() <= 1
    flat = T.ColorJitter(contrast=(0, 0))(source)
    assert abs(float(flat.mean()) - (source @ [0.299, 0.587, 0.114]).mean()) < 1
    same = T.ColorJitter(hue=(1, 1))(source).astype(int)  # a full turn
    assert np.abs(same - source).max() <= 2
    single = T.ColorJitter(brightness=(0.5, 0.5))(source[:, :, :1])
    assert np.abs(single - source[:, :, :1] * 0.5).max() <= 1
    with pytest.raises(ValueError, match="at least 0"):
        T.ColorJitter(brightness=-1)


def boxed(h=40, w=60):
    """A picture, a mask, and boxes around its one bright rectangle and around all of it."""
    image = np.zeros((h, w, 3), np.uint8)
    image[10:20, 30:50] = 255
    mask = (image[:, :, 0] > 0).astype(np.int32)
    return {
        "image": image,
        "mask": mask,
        "boxes": np.array([[30, 10, 50, 20, 7], [0, 0, w, h, 8]], np.float32),
        "labels": np.array([1, 2]),
        "name": "some",
    }


@pytest.mark.parametrize(
    "transform",
    [
        T.Resize((80, 30)),
        T.Resize((80, 30), "nearest"),
        T.ShortestEdgeResize(80),
        T.RandomHorizontalFlip(1.0),
        T.RandomVerticalFlip(1.0),
        T.Pad((3, 1, 5, 2)),
        T.RandomCrop((38, 58)),
        T.CenterCrop((30, 50)),
        T.RandomResizedCrop((50, 50), scale=(0.9, 1.0), ratio=(1.4, 1.5)),
        T.RandomAffine(translate=0.05, filter="nearest"),
        T.RandomAffine(scale=(0.8, 0.9), filter="nearest"),
        T.Compose([T.RandomHorizontalFlip(1.0), T.Resize(32), T.RandomVerticalFlip(1.0)]),
    ],
    ids=lambda each: type(each).__name__,
)
def test_boxes_and_masks_move_along(transform):
    moved = transform(boxed())
    bright = moved["image"][:, :, 0] > 127
    rows, columns = (np.nonzero(bright.any(axis=axis))[0] for axis in (1, 0))
    want = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
    assert np.abs(moved["boxes"][0, :4] - want).max() <= 1.01
    assert moved["boxes"][0, 4] == 7
    assert moved["name"] == "some"
    assert moved["mask"].shape == moved["image"].shape[:2]
    assert moved["mask"].dtype == np.int32
    assert np.mean((moved["mask"] > 0) != bright) < 0.02


def test_boxes_that_leave_take_their_labels_along():
    sample = boxed()
    moved = T.Compose([T.CenterCrop((40, 20))])(sample)  # columns 20 to 40: half of the first box
    assert moved["boxes"].tolist() == [[10, 10, 20, 20, 7], [0, 0, 20, 40, 8]]
    moved = T.Normalize(crop=(5, 5), mirror=1.0)(
        {**sample, "image": sample["image"][:, :29], "mask": sample["mask"][:, :29]}
    )
    assert moved["labels"].tolist() == []
    assert moved["image"].shape == (3, 5, 5)
    rotated = T.RandomRotation((45, 45))(boxed())
    assert len(rotated["boxes"]) == 2


def test_rand_augment_changes():
    source = picture()
    for name, (change, _) in T.RandAugment.changes.items():
        for amount in (0.0, 0.5, -0.5, 0.9):
            if amount < 0 and name in ("posterize", "solarize"):
                continue
            item = T.Item(source)
            change(item, amount)
            assert item.image.shape == source.shape
            if amount == 0 and name not in ("auto_contrast", "equalize"):
                np.testing.assert_array_equal(item.image, source, err_msg=name)
    dim = (source // 4 + 50).astype(np.uint8)
    item = T.Item(dim)
    T.RandAugment.changes["auto_contrast"][0](item, 0.0)
    assert (item.image.min(), item.image.max()) == (0, 255)


def test_sharpness_against_pillow():
    ImageEnhance = pytest.importorskip("PIL.ImageEnhance")
    Image = pytest.importorskip("PIL.Image")
    source = picture(20, 20)
    item = T.Item(source)
    T.RandAugment.changes["sharpness"][0](item, 0.5)
    want = np.asarray(ImageEnhance.Sharpness(Image.fromarray(source)).enhance(1.5)).astype(int)
    assert np.abs(item.image[1:-1, 1:-1] - want[1:-1, 1:-1]).max() <= 1


def test_mixup_and_cutmix():
    samples = [(np.full((1, 8, 8), k, np.float32), k) for k in range(4)]
    for kind in (T.Mixup, T.CutMix):
        loader = data.DataLoader(samples, batch_size=4, collator=kind(4, alpha=1.0), seed=1)
        x, y = next(iter(loader))
        assert (x.shape, y.shape, x.dtype.name) == ((4, 1, 8, 8), (4, 4), "float32")
        np.testing.assert_allclose(y.numpy().sum(1), 1, rtol=1e-6)
        own = y.numpy()[np.arange(4), np.arange(4)]
        assert np.ptp(own) < 1e-6  # one share for the batch
        want = own * np.arange(4) + (1 - own) * np.roll(np.arange(4), 1)
        np.testing.assert_allclose(x.numpy().mean((1, 2, 3)), want, atol=1e-5)
        again = data.DataLoader(samples, batch_size=4, collator=kind(4, alpha=1.0), seed=1, num_workers=2)
        np.testing.assert_array_equal(next(iter(again))[0].numpy(), x.numpy())
    with pytest.raises(TypeError, match="x must be of floats"):
        T.Mixup(2)([(np.zeros(2, np.uint8), 0)])
    with pytest.raises(ValueError, match="not one of 2 classes"):
        T.Mixup(2)([(np.zeros(2, np.float32), 2)])


def test_pictures_that_are_none():
    for bad in (
        np.zeros((2, 2, 3)),
        np.zeros((2, 2, 5), np.uint8),
        np.zeros((0, 2, 3), np.uint8),
        np.zeros(3, np.uint8),
    ):
        with pytest.raises(ValueError, match="a picture is u8"):
            T.Resize(2)(bad)
    with pytest.raises(TypeError, match="Resize cannot follow"):
        T.Compose([T.ToFloat(), T.Resize(2)])(picture())
    with pytest.raises(ValueError, match="filter must be one of"):
        T.Resize(2, filter="lanczos")


def test_native_functions_check_what_they_get():
    out = np.empty((4, 4, 3), np.uint8)
    with pytest.raises(
        ValueError, match=r"crop: the part \[0, 4\) x \[30, 34\) is not inside of 24 x 32 pixels"
    ):
        _core.image_crop(picture(), out, 0, 30)
    with pytest.raises(ValueError, match="channels differ: 1 and 3"):
        _core.image_resize(picture(c=1), out, 0, 0, 2, 2, "area")
    with pytest.raises(ValueError, match="pixels of a row must lie side by side"):
        _core.image_crop(picture()[:, ::2], out, 0, 0)
    with pytest.raises(ValueError, match="mean needs 3 numbers, got 2"):
        _core.image_normalize(
            picture(), np.empty((3, 2, 2), "f"), 0, 0, False, np.zeros(2, "f"), np.zeros(3, "f"), True
        )


def test_decoding():
    pytest.importorskip("PIL")
    source = smooth(64, 96)
    for extension in (".jpg", ".png", ".bmp", ".webp"):
        content = images.encode(source, extension, quality=95)
        found = images.decode(content)
        assert found.shape == source.shape
        assert np.abs(found.astype(int) - source).mean() < 3
        assert images.decode(content, "L").shape == (64, 96, 1)
    small = images.decode(images.encode(source), min_size=(20, 30))
    assert 20 <= small.shape[0] < 64
    grey = images.encode(source[:, :, :1], ".jpg")
    assert images.decode(grey).shape == (64, 96, 3)
    for bad in (b"", b"no picture", images.encode(source)[:500], images.encode(source, ".png")[:100]):
        with pytest.raises(ValueError, match=f"decode: {len(bad)} bytes that are not a picture"):
            images.decode(bad)
    with pytest.raises(ValueError, match="takes u8"):
        images.encode(np.zeros((2, 2, 2), np.uint8))
    with pytest.raises(ValueError, match="no kind of file"):
        images.encode(source, ".xyz")


def test_numbers_that_are_none_or_too_large():
    """Errors, not pixels from elsewhere; a colour that is not a number is 0."""
    small, out = np.full((4, 4, 3), 7, np.uint8), np.zeros((2, 2, 3), np.uint8)
    for part in (
        (np.nan, 0, 2, 2),
        (0, np.nan, 2, 2),
        (0, 0, np.inf, 2),
        (1e300, 0, 2, 2),
        (0, 0, 2, np.nan),
    ):
        with pytest.raises(ValueError, match="resize"):
            _core.image_resize(small, out, *part, "area")
    for filter in ("area", "cubic", "linear"):
        _core.image_resize(small, out, -1e9, 0, 1e9, 4, filter)
    same = np.zeros((4, 4, 3), np.uint8)
    _core.image_mix_channels(small, same, np.full((3, 4), np.nan, np.float32))
    assert not same.any()
