"""torch.fft, short-time transforms, and models that are made of them.  Complex outputs have a last axis of size 2."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import nn

import purexport
from tests.harness import CAPTURES, Row, c64, c128, f32, f64, i64, layer
from tests.row_plans import Plan, row_params, run_row

aten = torch.ops.aten
FEW, SOME, LATER = (9, 17, 20), (13, 20), (13, 17, 20, 23)
LONG = {"atol": 1e-4, "loose": "sums of hundreds of float32 numbers, many times larger than what is left of them"}
NORMS = ("backward", "ortho", "forward")


def _there_and_back(x: torch.Tensor) -> torch.Tensor:
    return torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1])


def _shifted(x: torch.Tensor) -> torch.Tensor:
    return torch.fft.fftshift(x) + torch.fft.ifftshift(x, 1)


ONE_AXIS = [
    *(
        Row(
            f"{name}-{norm}",
            lambda z, name=name, norm=norm: getattr(torch.fft, name)(z, norm=norm),
            c64(2, 6),
            opsets=FEW,
        )
        for name in ("fft", "ifft", "irfft", "hfft")
        for norm in ("backward", "ortho", "forward")
    ),
    *(
        Row(
            f"{name}-{norm}-real",
            lambda x, name=name, norm=norm: getattr(torch.fft, name)(x, norm=norm),
            f32(2, 5),
            opsets=FEW,
        )
        for name in ("fft", "ifft", "rfft", "ihfft", "irfft", "hfft")
        for norm in ("backward", "ortho", "forward")
    ),
    *(
        Row(f"{name}-longer", partial(getattr(torch.fft, name), n=7, dim=0), c64(4, 3))
        for name in ("fft", "ifft", "irfft", "hfft")
    ),
    *(
        Row(f"{name}-shorter", partial(getattr(torch.fft, name), n=4, dim=1), f32(2, 7, 3))
        for name in ("fft", "ifft", "rfft", "ihfft", "irfft", "hfft")
    ),
    Row("fft-vector", torch.fft.fft, c64(8)),
    Row("fft-integers", torch.fft.fft, i64(2, 5)),
    Row("fft-double", torch.fft.fft, c128(2, 5)),
    Row("rfft-double", torch.fft.rfft, f64(2, 5)),
    Row("fft-one-point", torch.fft.fft, c64(3, 1)),
    Row("fft-batch", torch.fft.fft, c64(2, 6), dynamic="batch"),
    Row("rfft-prime", torch.fft.rfft, f32(2, 31)),
    Row("irfft-odd", lambda z: torch.fft.irfft(z, n=5), c64(2, 3), trap="the last frequency is not a middle one"),
    Row("irfft-middle", lambda z: torch.fft.irfft(z, n=4), c64(2, 3), trap="imaginary parts of ends do not count"),
    Row("there-and-back", _there_and_back, f32(2, 7)),
    Row("large", torch.fft.fft, c64(2, 600), **LONG, opsets=FEW, trap="ONNX Runtime's DFT of floats is off by 0.01"),
    Row("large-power", torch.fft.fft, c64(1024), **LONG, opsets=FEW),
    Row("large-rfft", torch.fft.rfft, f32(1, 601), **LONG, opsets=FEW),
    Row("large-irfft", torch.fft.irfft, c64(2, 400), opsets=FEW),
    Row("large-irfft-odd", lambda z: torch.fft.irfft(z, n=601), c64(301), opsets=FEW),
]

FRAMES = {0: {2: "frames"}}
LENGTH = {0: {0: "batch", 1: "length"}}

DYNAMIC = [
    Row("fft-length", torch.fft.fft, c64(2, 6), dynamic=LENGTH, opsets=LATER),
    Row("ifft-length", torch.fft.ifft, c64(2, 6), dynamic=LENGTH, opsets=LATER),
    Row("rfft-length", torch.fft.rfft, f32(2, 6), dynamic=LENGTH, opsets=LATER),
    Row("irfft-length", torch.fft.irfft, c64(2, 6), dynamic=LENGTH, opsets=LATER),
    Row(
        "irfft-same-length",
        lambda x: torch.fft.irfft(torch.fft.rfft(x), n=x.shape[1]),
        f32(2, 6),
        dynamic=LENGTH,
        opsets=(13, 20),
    ),
    Row(
        "rfft-twice-the-length",
        lambda x: torch.fft.rfft(x, n=2 * x.shape[1]),
        f32(2, 6),
        dynamic=LENGTH,
        opsets=(13, 20),
    ),
    Row("rfft-fixed", lambda x: torch.fft.rfft(x, n=8), f32(2, 6), dynamic=LENGTH, opsets=SOME, routes=["trace"]),
    Row("fft-ortho-length", lambda x: torch.fft.fft(x, norm="ortho"), f32(2, 6), dynamic=LENGTH, opsets=SOME),
    Row(
        "shift-length",
        _shifted,
        f32(2, 6),
        dynamic=LENGTH,
        opsets=(13, 20),
    ),
]

SEVERAL_AXES = [
    *(
        Row(name, getattr(torch.fft, name), c64(2, 4, 3), opsets=FEW)
        for name in ("fft2", "ifft2", "irfft2", "hfft2", "fftn", "ifftn", "irfftn", "hfftn")
    ),
    *(
        Row(f"{name}-real", getattr(torch.fft, name), f32(2, 4, 3), opsets=FEW)
        for name in ("fft2", "rfft2", "ihfft2", "irfft2", "hfft2", "rfftn", "ihfftn", "irfftn", "hfftn")
    ),
    Row("fft2-sizes", lambda x: torch.fft.fft2(x, s=(5, 2), dim=(0, 2), norm="ortho"), f32(2, 4, 3)),
    Row("rfftn-sizes", lambda x: torch.fft.rfftn(x, s=(5, -1)), f32(2, 4, 3)),
    Row("irfftn-sizes", lambda z: torch.fft.irfftn(z, s=(4, 5), norm="forward"), c64(2, 4, 3)),
    Row("hfftn-sizes", lambda z: torch.fft.hfftn(z, s=(4, 5), norm="ortho"), c64(2, 4, 3)),
    Row("ihfftn-dims", lambda x: torch.fft.ihfftn(x, dim=(2, 0)), f32(2, 4, 3)),
    Row("rfft2-batch", torch.fft.rfft2, f32(2, 4, 3), dynamic="batch"),
]

HELPERS = [
    Row("_fft_c2c", lambda z: aten._fft_c2c(z, [1, 0], 1, False), c64(3, 4)),
    Row("_fft_r2c", lambda x: aten._fft_r2c(x, [1], 2, True), f32(3, 4)),
    Row("_fft_r2c-both-sides", lambda x: aten._fft_r2c(x, [0, 1], 0, False), f32(3, 4)),
    Row("_fft_c2r", lambda z: aten._fft_c2r(z, [0, 1], 2, 5), c64(3, 3)),
    Row("fftshift", lambda x: (torch.fft.fftshift(x), torch.fft.fftshift(x, dim=1)), f32(4, 5)),
    Row("ifftshift", lambda x: (torch.fft.ifftshift(x), torch.fft.ifftshift(x, dim=(0, 1))), f32(4, 5)),
    Row("fftshift-complex", lambda z: torch.fft.ifftshift(torch.fft.fftshift(z) * 2, dim=1), c64(4, 5)),
    Row("fftfreq", lambda x: x + torch.fft.fftfreq(5) - torch.fft.fftfreq(5, d=0.1), f32(5)),
    Row("fftfreq-even", lambda x: x + torch.fft.fftfreq(6, dtype=torch.float64), f32(6)),
    Row("rfftfreq", lambda x: x + torch.fft.rfftfreq(6, d=0.5), f32(4)),
]

HANN = torch.hann_window(8)


def _stft(x: torch.Tensor, **options: object) -> torch.Tensor:
    return torch.stft(x, 8, return_complex=True, **options)


def _short_time_and_back(x: torch.Tensor) -> torch.Tensor:
    return torch.istft(_stft(x, window=HANN), 8, window=HANN, length=20)


SHORT_TIME = [
    *(
        Row(
            f"{function.__name__}-of-any-length",
            lambda x, function=function, options=options: x * function(x.shape[0], *options),
            f32(6),
            dynamic={0: {0: "length"}},
            every=(1, 2, 9),
            opsets=(13, 20),
            routes=CAPTURES,
            trap="a window of one element is 1",
        )
        for function, options in (
            (torch.hann_window, ()),
            (torch.hamming_window, (False,)),
            (torch.blackman_window, ()),
            (torch.bartlett_window, (False,)),
            (torch.kaiser_window, (True, 6.0)),
        )
    ),
    Row("stft", lambda x: _stft(x, window=HANN), f32(2, 20), dynamic="batch"),
    Row("stft-length", lambda x: _stft(x, window=HANN).abs(), f32(2, 20), dynamic=LENGTH, opsets=(13, 17, 20)),
    Row("stft-signal", lambda x: _stft(x, window=HANN), f32(20)),
    Row("stft-hop", lambda x: _stft(x, hop_length=3, win_length=6, window=HANN[:6]), f32(2, 20)),
    Row("stft-short-window", lambda x: _stft(x, win_length=5), f32(2, 20)),
    Row("stft-not-centered", lambda x: _stft(x, center=False, window=HANN), f32(2, 20)),
    Row("stft-padded", lambda x: _stft(x, pad_mode="constant", window=HANN), f32(2, 20)),
    Row("stft-normalized", lambda x: _stft(x, normalized=True), f32(2, 20)),
    Row("stft-both-sides", lambda x: _stft(x, onesided=False), f32(2, 20)),
    Row("stft-complex", lambda z: _stft(z, window=HANN), c64(2, 20)),
    Row("stft-real", lambda x: torch.stft(x, 8, window=HANN, return_complex=False), f32(2, 20)),
    Row(
        "stft-center-real", lambda x: aten.stft.center(x, 8, return_complex=True), f32(2, 20), traced="another overload"
    ),
    Row("stft-center-complex", lambda z: aten.stft.center(z, 8, pad_mode="constant", return_complex=True), c64(20)),
    Row("stft-center-parts", lambda x: aten.stft.center(x, 8, center=False, return_complex=False), f32(20)),
    Row("istft", lambda z: torch.istft(z, 8, window=HANN), c64(2, 5, 6), dynamic="batch"),
    Row(
        "istft-frames",
        lambda z: torch.istft(z, 8, window=HANN),
        c64(2, 5, 6),
        dynamic={0: {2: "frames"}},
        opsets=(13, 20),
    ),
    Row("istft-one", lambda z: torch.istft(z, 8, hop_length=4), c64(5, 6)),
    Row("istft-options", lambda z: torch.istft(z, 8, 2, 6, torch.ones(6), normalized=True, length=9), c64(2, 5, 6)),
    Row("istft-not-centered", lambda z: torch.istft(z, 8, center=False), c64(2, 5, 6)),
    Row("istft-both-sides", lambda z: torch.istft(z, 8, onesided=False), c64(2, 8, 6)),
    Row("istft-all-frequencies", lambda z: torch.istft(z, 8), c64(2, 8, 6), trap="as many as points: no half of them"),
    Row("istft-longer", lambda z: torch.istft(z, 8, window=torch.ones(8), length=13), c64(2, 5, 6)),
    Row("there-and-back-short-time", _short_time_and_back, f32(2, 20)),
]

WINDOWS = [
    Row("hann", lambda x: x * torch.hann_window(6) * torch.hann_window(6, periodic=False), f32(6)),
    Row("blackman", lambda x: x * torch.blackman_window(6) * torch.blackman_window(6, periodic=False), f32(6)),
    Row("bartlett", lambda x: x * torch.bartlett_window(6) * torch.bartlett_window(6, periodic=False), f32(6)),
    Row("hamming", lambda x: x * torch.hamming_window(6) * torch.hamming_window(6, periodic=False), f32(6)),
    Row(
        "hamming-alpha",
        lambda x: x * torch.hamming_window(6, True, 0.6) + torch.hamming_window(6, True, 0.6, 0.4),
        f32(6),
    ),
    Row("kaiser", lambda x: x * torch.kaiser_window(6) * torch.kaiser_window(6, False), f32(6)),
    Row("kaiser-beta", lambda x: x * torch.kaiser_window(6, True, 5.0, dtype=torch.float64), f32(6)),
    Row(
        "signal-windows",
        lambda x: x * torch.signal.windows.gaussian(6) + torch.signal.windows.cosine(6),
        f32(6),
        traced="keyword-only arguments",
    ),
    Row("sinc", lambda x: torch.sinc(x), f32(6)),
]

# As models write them -----------------------------------------------------------------------------------------------


class MelSpectrogram(nn.Module):
    """The logarithm of a spectrogram in 6 bands, as speech models begin with."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(16))
        self.register_buffer("bands", torch.rand(6, 9))

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        spectrum = torch.stft(signal, 16, hop_length=4, window=self.window, return_complex=True)
        power = spectrum[..., :-1].abs() ** 2
        return torch.clamp(self.bands @ power, min=1e-5).log10()


class Spectral(nn.Module):
    """A layer that mixes channels by frequency, as Fourier neural operators do."""

    def __init__(self, channels: int = 3, modes: int = 4) -> None:
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(channels, channels, modes, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft(x)
        mixed = torch.zeros_like(spectrum)
        mixed[:, :, : self.modes] = torch.einsum("bim,iom->bom", spectrum[:, :, : self.modes], self.weight)
        return torch.fft.irfft(mixed, n=x.size(-1))


class StateSpace(nn.Module):
    """A diagonal state space as one long convolution, computed by Fourier transforms (S4D)."""

    def __init__(self, channels: int = 3, states: int = 4) -> None:
        super().__init__()
        self.step = nn.Parameter(torch.rand(channels) * 0.1)
        self.rate = nn.Parameter(torch.rand(channels, states).log())
        self.turn = nn.Parameter(math.pi * torch.arange(states).repeat(channels, 1).float())
        self.mix = nn.Parameter(torch.randn(channels, states, 2))
        self.skip = nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[-1]
        pole = torch.complex(-torch.exp(self.rate), self.turn)
        stepped = pole * self.step[:, None]
        powers = stepped[..., None] * torch.arange(length)
        weight = torch.view_as_complex(self.mix) * (torch.exp(stepped) - 1.0) / pole
        kernel = 2 * torch.einsum("hn,hnl->hl", weight, torch.exp(powers)).real
        spectrum = torch.fft.rfft(x, n=2 * length) * torch.fft.rfft(kernel, n=2 * length)
        return torch.fft.irfft(spectrum, n=2 * length)[..., :length] + x * self.skip[:, None]


class Mixer(nn.Module):
    """FNet: the real part of a transform over words and channels instead of attention."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real


MODELS = [
    Row("mel", MelSpectrogram, f32(2, 40), dynamic=LENGTH, sizes={"length": 64}, opsets=(13, 17, 20)),
    Row("mel-script", MelSpectrogram, f32(2, 40), opsets=(13, 20), routes=["script"]),
    Row("spectral", Spectral, f32(2, 3, 12), dynamic="batch"),
    Row("state-space", StateSpace, f32(2, 3, 10), dynamic="batch"),
    Row("state-space-length", StateSpace, f32(2, 3, 10), dynamic={0: {0: "batch", 2: "length"}}, opsets=(13, 17, 20)),
    Row("mixer", layer(Mixer), f32(2, 5, 6), dynamic="batch"),
    Row("mixer-length", layer(Mixer), f32(2, 5, 6), dynamic=LENGTH, opsets=(13, 17, 20)),
]


ROWS = ONE_AXIS + DYNAMIC + SEVERAL_AXES + HELPERS + SHORT_TIME + WINDOWS + MODELS


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)


def test_the_file_holds_no_matrix() -> None:
    """The matrix of 512 points would be a megabyte; what is written is a table of one turn."""
    program = purexport.export(torch.fft.rfft, torch.randn(1, 512))
    assert len(program.model_proto.SerializeToString()) < 12_000


def test_a_complex_inverse_is_refused() -> None:
    with pytest.raises(purexport.UnsupportedOperatorError, match="return_complex=True has no rule"):
        purexport.export(
            lambda z: torch.istft(z, 8, onesided=False, return_complex=True), torch.randn(8, 6, dtype=torch.complex64)
        )
