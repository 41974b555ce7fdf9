import pytest

from policy_net.accelerators import Counted, counted_as, gres_counted_as


@pytest.mark.parametrize(
    ("names", "counted"),
    [
        (
            "nvidia.com/gpu amd.com/gpu gpu.intel.com/i915 gpu.intel.com/xe huawei.com/Ascend910 huawei.com/Ascend310P"
            " habana.ai/gaudi google.com/tpu aws.amazon.com/neuron cambricon.com/mlu370 hygon.com/dcunum",
            Counted.DEVICES,
        ),
        (
            "nvidia.com/mig-1g.5gb nvidia.com/gpu.shared nvidia.com/mig-1g.5gb.shared huawei.com/Ascend910-4c"
            " huawei.com/Ascend310P-2c.1cpu volcano.sh/vgpu-number aws.amazon.com/neuroncore amd.com/cpx_nps4",
            Counted.PARTS,
        ),
        (
            "aliyun.com/gpu-mem nvidia.com/gpumem nvidia.com/gpucores nvidia.com/gpumem-percentage"
            " tencent.com/vcuda-core volcano.sh/vgpu-memory volcano.sh/gpu-memory huawei.com/Ascend910B-memory"
            " koordinator.sh/gpu-core somebody.io/npu nvidia.com/GA102GL_A10",
            Counted.NOT,
        ),
        (
            "cpu memory ephemeral-storage hugepages-2Mi rdma/hca nvidia.com/hostdev devices.kubevirt.io/kvm"
            " xilinx.com/fpga gpu.intel.com/i915_monitoring somebody.io/input vpc.amazonaws.com/pod-eni docker.io/cpus",
            None,
        ),
    ],
)
def test_what_a_resource_of_kubernetes_counts_as(names: str, counted: Counted | None) -> None:
    assert {name: counted_as(name) for name in names.split()} == dict.fromkeys(names.split(), counted)


def test_what_a_generic_resource_of_slurm_counts_as() -> None:
    found = {name: gres_counted_as(name) for name in ("gpu", "shard", "mps", "npu", "tmpdisk", "nic", "craynetwork")}
    assert [name for name, counted in found.items() if counted is Counted.DEVICES] == ["gpu"]
    assert [name for name, counted in found.items() if counted is Counted.NOT] == ["shard", "mps", "npu"]
