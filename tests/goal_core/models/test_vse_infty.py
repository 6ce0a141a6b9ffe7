"""Pooling and cell dropping against plain loops."""

import pytest
import torch

from goal_sweep.goal_core.models.backbones import grid_features
from goal_sweep.goal_core.models.systems.vse_infty import drop_cells, region_mlp


def test_cells_drop_as_in_a_plain_loop() -> None:
    torch.manual_seed(3)
    cells, rate = torch.randn(40, 9, 2), 0.2
    torch.manual_seed(8)
    kept, lengths = drop_cells(cells, rate)
    torch.manual_seed(8)
    shares, draws = torch.rand(40).tolist(), torch.rand(40, 9).tolist()
    for row in range(40):
        chosen = [c for c in range(9) if shares[row] <= rate or draws[row][c] > rate * shares[row]] or list(range(9))
        assert lengths[row] == len(chosen)
        assert torch.equal(kept[row, : len(chosen)], cells[row, chosen])
        assert not kept[row, len(chosen) :].any()
    assert 0 < (lengths < 9).sum() < 40


def test_padding_rows_enter_the_statistics_of_the_region_mlp() -> None:
    torch.manual_seed(0)
    mlp = region_mlp(4, 6)
    regions = torch.randn(3, 5, 4)
    regions[1, 2:] = 0
    rows = regions.view(15, 4)
    first, _, _, second = mlp
    hidden = first(rows)
    normed = (hidden - hidden.mean(0)) / torch.sqrt(hidden.var(0, unbiased=False) + 1e-5)
    torch.testing.assert_close(mlp(rows), second(normed.relu()))


@pytest.mark.parametrize(("name", "size"), [("test_resnet", 96), ("test_efficientnet", 64)])
def test_cells_of_a_convolutional_backbone_average_to_its_pooled_features(name: str, size: int) -> None:
    import timm

    net = timm.create_model(name, num_classes=0).eval()
    pixels = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        cells = grid_features(net, pixels)
        torch.testing.assert_close(cells.mean(dim=1), net(pixels), rtol=1e-4, atol=1e-5)
    assert cells.shape[1] > 1


def test_cells_of_a_vit_are_its_patches_without_the_class_token() -> None:
    import timm

    net = timm.create_model("test_vit", num_classes=0).eval()
    pixels = torch.randn(2, 3, 160, 160, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.equal(grid_features(net, pixels), net.forward_features(pixels)[:, 1:])
    assert grid_features(net, pixels).shape == (2, 100, 64)
