"""A synthetic scene of a red circle and a blue star."""

from __future__ import annotations

from goal_sweep.goal_core.data.scenes.scene import Scene, SceneObject


def two_objects(row: int, column: int, other_row: int, other_column: int) -> Scene:
    first = SceneObject(row=row, column=column, shape="circle", colour="red", size="small")
    second = SceneObject(row=other_row, column=other_column, shape="star", colour="blue", size="large")
    return Scene(objects=(first, second), tint="white", pattern="plain")
