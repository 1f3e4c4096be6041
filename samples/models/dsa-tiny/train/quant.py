"""MXFP4 as used for the routed experts: fake quantisation for training and the packer for export share one function.

Blocks of 32 along the input dimension, one E8M0 scale a block:
    s = pow2ceil(amax / 7),  q = RNE_e2m1(clamp(w / s, -6, 6)),  w' = q * s
"""
import torch

BLOCK = 32
LEVELS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def pow2(e):
    """2^e as float32, exact, for int e in -126 .. 127."""
    return ((e.to(torch.int32) + 127) << 23).view(torch.float32)


def quantise(w):
    """w [..., K] -> (q [..., K] in units of the scale, e [..., K/32] int exponent of the scale)."""
    b = w.float().reshape(*w.shape[:-1], w.shape[-1] // BLOCK, BLOCK)
    bits = (b.abs().amax(-1, keepdim=True) / 7).view(torch.int32)
    e = (bits >> 23) - 127 + ((bits & 0x7FFFFF) != 0).to(torch.int32)       # pow2ceil
    e = torch.where(bits == 0, torch.zeros_like(e), e).clamp(-120, 120)
    x = (b * pow2(-e)).clamp(-6, 6)
    a = x.abs()
    # steps 0.5 below 2, 1 below 4, 2 above; torch.round is round-half-even, which is even mantissa on each of the grids
    r = torch.where(a < 2, (a * 2).round() / 2, torch.where(a < 4, a.round(), (a / 2).round() * 2))
    return (r * x.sign()).reshape(w.shape), e.squeeze(-1)


def dequantise(q, e):
    b = q.reshape(*q.shape[:-1], q.shape[-1] // BLOCK, BLOCK)
    return (b * pow2(e.unsqueeze(-1))).reshape(q.shape)


def fake_quant(w):
    """Quantised value forward, identity backward."""
    return dequantise(*quantise(w.detach())).to(w.dtype) + (w - w.detach())


def pack(w):
    """[N, K] float -> weight_packed uint8 [N, K/2] (low nibble = even column), weight_scale uint8 [N, K/32] (E8M0)."""
    q, e = quantise(w)
    levels = torch.tensor(LEVELS, device=q.device)
    code = torch.searchsorted(levels, q.abs().contiguous()).to(torch.uint8)
    code = code | ((q < 0).to(torch.uint8) << 3)
    return code[..., 0::2] | (code[..., 1::2] << 4), (e + 127).to(torch.uint8)


def unpack(packed, scale):
    """Inverse of pack; raises on the NaN scale 255."""
    if (scale == 255).any():
        raise ValueError("E8M0 scale 255")
    code = torch.stack((packed & 15, packed >> 4), -1).flatten(-2).long()
    mag = torch.tensor(LEVELS, device=packed.device)[code & 7]
    return dequantise(torch.where(code & 8 > 0, -mag, mag), scale.int() - 127)


if __name__ == "__main__":
    torch.manual_seed(0)
    w = torch.randn(64, 512) * torch.exp2(torch.randint(-20, 6, (64, 1)).float())
    w[3] = 0
    w[5, :32] = torch.tensor([7.0] + [i * 0.25 for i in range(31)])
    w[6, :32] = torch.tensor([-6.5] + [-i * 0.125 for i in range(31)])
    w2 = w.clone().requires_grad_()
    f = fake_quant(w2)
    assert torch.equal(unpack(*pack(w)), f.detach() + 0.0), "decode(pack(w)) != fake_quant(w)"
    assert torch.equal(unpack(*pack(f.detach())), f.detach()), "not idempotent on packed values"
    f.sum().backward()
    assert torch.equal(w2.grad, torch.ones_like(w))
    v = unpack(torch.tensor([[0x72]], dtype=torch.uint8).repeat(1, 16), torch.tensor([[127]], dtype=torch.uint8))
    assert v[0, :2].tolist() == [1.0, 6.0]
    print("quant ok")
