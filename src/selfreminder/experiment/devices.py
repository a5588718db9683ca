"""What `auto` means for a device and a precision, on the machine at hand."""


def choose_device(name: str) -> str:
    """Give cuda, mps or cpu for auto, in this order; another name as it is."""
    if name != "auto":
        return name
    import torch  # noqa: PLC0415 - takes seconds, and is needed for auto alone

    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


def choose_precision(name: str, device: str) -> str:
    """Give bf16 for auto where the processor computes in it, else fp32; another name as it is."""
    if name != "auto":
        return name
    import torch  # noqa: PLC0415

    if device.startswith("cuda"):
        fast = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        flags = torch.backends.cpu.get_cpu_capability() if device == "cpu" else ""
        fast = flags.startswith("AVX512") and torch.cpu._is_avx512_bf16_supported()
    return "bf16" if fast else "fp32"
