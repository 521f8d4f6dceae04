"""Derives the coefficients in src/math/mod.rs. Needs numpy and mpmath.

exp(t) = 1 + t + t^2 q(t)        on |t| <= ln(2)/2, relative error
erf(x) = x P(x^2) / Q(x^2)       on |x| <= LIMIT, Q(0) = 1, error times max(1, x): GELU multiplies it by its argument
tanh(x) = x P(x^2)               on |x| <= 1/4, relative error

All by Lawson's iteration: weighted linear least squares (for erf of P - f Q = 0) on Chebyshev nodes, with weights that
grow where the error is largest, until the error levels out.
"""
import mpmath as mp
import numpy as np

LIMIT = 3.93


def lawson(x, f, weight, p_degree, q_degree, rounds=400):
    """P and Q in powers of x^2 with weight * |x P / Q - f| levelled."""
    u = x * x
    scale = u.max()
    v = u / scale
    numerator = x[:, None] * v[:, None] ** np.arange(p_degree + 1)
    denominator = f[:, None] * v[:, None] ** np.arange(1, q_degree + 1)
    a = np.hstack([numerator, -denominator])
    lawson_weight = np.ones_like(x) / len(x)
    q_values = np.ones_like(x)
    best = (np.inf, None)
    for _ in range(rounds):
        w = np.sqrt(lawson_weight) * weight / q_values
        c, *_ = np.linalg.lstsq(a * w[:, None], f * w, rcond=None)
        p, q = c[: p_degree + 1], np.concatenate([[1.0], c[p_degree + 1 :]])
        q_values = (v[:, None] ** np.arange(q_degree + 1)) @ q
        error = weight * np.abs(numerator @ p / q_values - f)
        if error.max() < best[0]:
            best = (error.max(), (p / scale ** np.arange(p_degree + 1), q / scale ** np.arange(q_degree + 1)))
        lawson_weight *= error / error.max() + 1e-3
        lawson_weight /= lawson_weight.sum()
    return best


def erf_f32(x, p, q):
    """The f32 evaluation of src/math/mod.rs, without FMA."""
    x = np.clip(x.astype(np.float32), -np.float32(LIMIT), np.float32(LIMIT))
    u = x * x
    top, bottom = np.float32(p[-1]), np.float32(q[-1])
    for c in p[-2::-1]:
        top = top * u + np.float32(c)
    for c in q[-2::-1]:
        bottom = bottom * u + np.float32(c)
    return np.clip(x * top / bottom, np.float32(-1), np.float32(1))


def polynomial(x, f, weight, degree, rounds=400):
    """Coefficients c with weight * |sum c_k x^k - f| levelled."""
    a = x[:, None] ** np.arange(degree + 1)
    lawson_weight = np.ones_like(x) / len(x)
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


def nodes(low, high, count=2000):
    return low + (high - low) * 0.5 * (1 - np.cos(np.pi * (np.arange(count) + 0.5) / count))


def show(name, coefficients):
    print(name, ", ".join(repr(float(np.float32(c))) for c in coefficients))


def main():
    half = float(mp.log(2) / 2) * 1.0001
    t = nodes(-half, half)
    q = np.array([float((mp.exp(mp.mpf(v)) - 1 - mp.mpf(v)) / mp.mpf(v) ** 2) for v in t])
    level, c = polynomial(t, q, t**2 / np.exp(t), 4)
    print("exp, relative", level)
    show("  q", c)

    x = nodes(0, LIMIT)
    f = np.array([float(mp.erf(v)) for v in x])
    level, (p, q) = lawson(x, f, np.maximum(1.0, x), 5, 5)
    dense = np.linspace(0, 4.5, 20001).astype(np.float32)
    exact = np.array([float(mp.erf(float(v))) for v in dense])
    print("erf, weighted", level, "in f32", np.abs(erf_f32(dense, p, q) - exact).max())
    show("  P", p)
    show("  Q", q)

    x = nodes(0, 0.25)
    f = np.array([float(mp.tanh(v)) for v in x])
    level, (p, _) = lawson(x, f, 1 / np.maximum(x, 1e-9), 3, 0)
    print("tanh, relative", level)
    show("  P", p)


main()
