import math

import torch
import torch.nn.functional as F

from logo_ssl.similarity_losses import info_nce, negative_cosine


def test_eq1_equals_the_naive_double_loop(random):
    z, z_pos, z_neg = (F.normalize(random(n, 6), dim=-1) for n in (5, 5, 7))
    tau = 0.2
    naive = []
    for i in range(5):
        pos = math.exp(float(z[i] @ z_pos[i]) / tau)
        negs = sum(math.exp(float(z[i] @ z_neg[k]) / tau) for k in range(7))
        naive.append(-math.log(pos / (pos + negs)))
    torch.testing.assert_close(info_nce(z, z_pos, z_neg, tau), torch.tensor(naive, dtype=torch.float64))


def test_eq1_leaves_out_what_is_excluded(random):
    z, z_pos, z_neg = random(2, 4), random(2, 4), random(3, 4)
    excluded = torch.tensor([[True, False, False], [False, False, True]])
    loss = info_nce(z, z_pos, z_neg, 0.5, excluded)
    torch.testing.assert_close(loss[:1], info_nce(z[:1], z_pos[:1], z_neg[1:], 0.5))
    torch.testing.assert_close(loss[1:], info_nce(z[1:], z_pos[1:], z_neg[:2], 0.5))


def test_eq1_stays_finite_where_its_exponentials_do_not():
    z, tau = F.normalize(torch.randn(4, 8), dim=-1), 0.01  # the paper's smallest temperature is 0.07
    assert torch.exp(torch.tensor(1 / tau)).isinf()
    assert torch.isfinite(info_nce(z, -z, z, tau)).all()


def test_eq2_equals_the_naive_loop(random):
    h_z, z = random(5, 6), random(5, 6)
    naive = [-float(h_z[i] @ z[i]) / (float(h_z[i].norm()) * float(z[i].norm())) for i in range(5)]
    torch.testing.assert_close(negative_cosine(h_z, z), torch.tensor(naive, dtype=torch.float64))
