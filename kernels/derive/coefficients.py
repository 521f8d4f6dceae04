"""Derives the coefficients in src/math/mod.rs, src/simd/vector.rs and src/activation/gelu.rs. Needs numpy and mpmath.

exp(t) = 1 + t (1 + t q(t))       on |t| <= ln(2)/16, relative error
2^(j/8)                           the bits of f32
-(1 - F(z)), F of GELU            on the intervals around the multiples of STEP, error times max(z, 1): GELU multiplies it
                                  by z, its derivative does not
tanh(x) = x P(x^2)                on |x| <= 1/4, relative error

All by Lawson's iteration: weighted linear least squares on Chebyshev nodes, with weights that grow where the error is
largest, until the error levels out.
"""
import mpmath as mp
import numpy as np

STEP, END = 0.75, 5.5


def levelled(a, f, weight, rounds=400):
    """Coefficients c with weight * |a c - f| levelled."""
    lawson_weight = np.ones_like(f) / len(f)
    best = (np.inf, None)
    for _ in range(rounds):
        w = np.sqrt(lawson_weight) * weight
        c, *_ = np.linalg.lstsq(a * w[:, None], f * w, rcond=None)
        error = weight * np.abs(a @ c - f)
        if error.max() < best[0]:
            best = (error.max(), c)
        lawson_weight *= error / error.max() + 1e-3
        lawson_weight /= lawson_weight.sum()
    return best


def powers(x, exponents):
    return np.stack([x**k for k in exponents], 1)


def nodes(low, high, count=600):
    return low + (high - low) * 0.5 * (1 - np.cos(np.pi * (np.arange(count) + 0.5) / count))


def fma(a, b, c):
    """a * b + c in f32."""
    return np.float32(np.float64(a) * np.float64(b) + np.float64(c))


def normal_tail(z):
    return mp.erfc(mp.mpf(z) / mp.sqrt(2)) / 2


def tanh_tail(z):
    z = mp.mpf(z)
    return 1 / (1 + mp.exp(2 * mp.sqrt(2 / mp.pi) * (z + mp.mpf("0.044715") * z**3)))


def tail_coefficients(tail, degree):
    """For each center the coefficients in f32, the constant first, and the largest error of the tail times max(z, 1)."""
    rows, largest = [], 0.0
    for number in range(8):
        center = number * STEP
        z = nodes(max(0.0, center - STEP / 2), min(center + STEP / 2, END))
        t, f = z - center, np.array([-float(tail(v)) for v in z])
        weight = np.maximum(z, 1)
        if number == 0:
            # -1/2 at 0, so that the relative error of GELU is small there.
            level, c = levelled(powers(t, range(1, degree + 1)), f + 0.5, weight)
            c = np.concatenate([[-0.5], c])
        elif number == 7:
            # 0 at END.
            last = END - center
            level, c = levelled((t - last)[:, None] * powers(t, range(degree)), f, weight)
            c = np.convolve(c, [-last, 1.0])
        else:
            level, c = levelled(powers(t, range(degree + 1)), f, weight)
        c = c.astype(np.float32)
        if number == 7:
            # END is a power of two away from its center, so the last product is exact, and the sum can be exactly 0.
            q = c[degree]
            for k in range(degree - 1, 0, -1):
                q = fma(q, last, c[k])
            c[0] = -np.float32(q * np.float32(last))
            assert fma(q, last, c[0]) == 0
        rows.append(c)
        largest = max(largest, level)
    return np.array(rows), largest


def show(name, coefficients):
    print(name, ", ".join(repr(float(np.float32(c))) for c in coefficients))


def main():
    half = float(mp.log(2) / 16) * 1.0005
    t = nodes(-half, half)
    f = np.array([float(mp.expm1(mp.mpf(v)) - mp.mpf(v)) for v in t])
    level, c = levelled(powers(t, [2, 3]), f, 1 / np.exp(t))
    print("exp, relative", level)
    show("  q", c)
    print("  ln 2 in f32 minus ln 2", float(mp.mpf(float(np.float32(mp.log(2)))) - mp.log(2)))
    print("  powers", ", ".join(hex(np.float32(float(mp.mpf(2) ** (mp.mpf(j) / 8))).view(np.uint32)) for j in range(8)))

    for name, tail in [("normal", normal_tail), ("tanh", tanh_tail)]:
        rows, largest = tail_coefficients(tail, 6)
        print("GELU,", name, largest)
        for k in range(6, -1, -1):
            show(f"  t^{k}", rows[:, k])

    x = nodes(0, 0.25)
    f = np.array([float(mp.tanh(v)) for v in x])
    level, c = levelled(powers(x, [1, 3, 5, 7]), f, 1 / np.maximum(x, 1e-9))
    print("tanh, relative", level)
    show("  P", c)


main()
