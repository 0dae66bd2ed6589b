"""What people ask for, from what the driver says."""

import pytest

from jupyter_gpu.broker.telemetry.classes import device_class

MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "memory_mib", "wanted"),
    [
        ("NVIDIA A100-SXM4-80GB", 81920, "a100-80gb"),
        ("NVIDIA A100 80GB PCIe", 81920, "a100-80gb"),
        ("A100-SXM4-40GB", 40536, "a100-40gb"),
        ("NVIDIA A100-PCIE-40GB", None, "a100-40gb"),
        ("NVIDIA H100 80GB HBM3", 81559, "h100-80gb"),
        ("NVIDIA H100 PCIe", 81559, "h100-80gb"),
        ("NVIDIA H100 NVL", 95830, "h100-94gb"),
        ("NVIDIA H200", 143771, "h200-141gb"),
        ("NVIDIA B200", 183359, "b200-180gb"),
        ("NVIDIA GH200 480GB", 97871, "gh200-96gb"),
        ("NVIDIA GH200 144G HBM3e", 146831, "gh200-144gb"),
        ("NVIDIA GeForce RTX 4090", 24564, "rtx-4090-24gb"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376, "rtx-4090-laptop-16gb"),
        ("NVIDIA GeForce RTX 2080 Ti", 11019, "rtx-2080-ti-11gb"),
        ("GeForce GTX 1080 Ti", 11178, "gtx-1080-ti-11gb"),
        ("NVIDIA GeForce RTX 3060", 12288, "rtx-3060-12gb"),
        ("NVIDIA RTX A6000", 49140, "rtx-a6000-48gb"),
        ("NVIDIA RTX 6000 Ada Generation", 49140, "rtx-6000-ada-48gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887, "rtx-pro-6000-blackwell-96gb"),
        ("Quadro RTX 6000", 24220, "quadro-rtx-6000-24gb"),
        ("NVIDIA TITAN V", 12066, "titan-v-12gb"),
        ("Tesla V100-SXM2-16GB", 16160, "v100-16gb"),
        ("Tesla T4", 15360, "t4-16gb"),
        ("Tesla K80", 11441, "k80-12gb"),
        ("NVIDIA A10", 23028, "a10-24gb"),
        ("NVIDIA L4", 23034, "l4-24gb"),
        ("NVIDIA L40S", 46068, "l40s-48gb"),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40192, "mig-3g.40gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", 9856, "mig-1g.10gb+me"),
        ("NVIDIA GB10", None, "gb10"),
        ("NVIDIA Thing 9000", 7 * 1024, "thing-9000-7gb"),
        ("NVIDIA Thing/9 (rev. 2)", 500, "thing-9-rev.-2-1gb"),
        ("", None, "unknown"),
        ("NVIDIA", 8192, "unknown-8gb"),
    ],
)
def test_the_class_is_chip_and_memory(name, memory_mib, wanted):
    """Mounting, cooling and marketing are left out; the size is the one on the box, not the one that ECC leaves."""
    assert device_class(name, memory_mib and memory_mib * MIB) == wanted
