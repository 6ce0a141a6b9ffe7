"""Settings of clusters, as `--set` gives them: what is refused, and where."""

import pytest

from goal_sweep.sweeps import SweepError
from goal_sweep.sweeps.reading.load import load_for_cluster


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("slurm.nodes=0", "nodes must be at least 1, got 0"),
        ("slurm.save_before=5", "save_before must be at least 30"),
        ("slurm={array: 2, nodes: 2}", "array needs nodes: 1"),
        ("slurm.gpu_type=a100", "gpu_type needs gpus_per_node"),
        ('slurm.partition="a\\nrm -r ~"', "partition: must match pattern"),
        ("slurm.options=[-C a100]", "options.0: must be one option, which begins with --, got '-C a100'"),
        ("slurm.options=['--signal=B:TERM@5']", "options.0: may not be --signal"),
        ('slurm.options=["--comment=a\\r#SBATCH --uid=0"]', "options.0: must be one option"),
        ("slurm.environment={HF_TOKEN: x}", "environment.HF_TOKEN: must not hold secrets such as HF_TOKEN"),
        ("slurm.environment={A-B: x}", "environment: 'A-B' is no variable's name"),
        ('slurm.environment={A: "x\\ny"}', "environment.A: the value of A must be one line"),
        ("slurm.pass_environment=['A=1']", "pass_environment.0: must match pattern"),
        ("slurm.container={image: ''}", "container.image: must have at least 1 character"),
        ("slurm.container={image: i.sif, mounts: [data]}", "container.mounts.0: must match pattern '^/'"),
        ("ray.address=head:6379", "address: must match pattern '^(https?://"),
        ("ray.tracking=http://u:hunter2@mlflow", "tracking: must not carry credentials"),
        ("ray.runtime_env={env_vars: {A: b}}", "runtime_env.env_vars: may not hold env_vars"),
        ("ray.environment={API_KEY: x}", "environment.API_KEY: must not hold secrets"),
        ("kubernetes.workers=0", "workers must be at least 1, got 0"),
        ("kubernetes.worker_pod={volumes: []}", "worker_pod.volumes: may not hold volumes"),
    ],
)
def test_what_cannot_be_is_refused_by_name(override: str, said: str) -> None:
    with pytest.raises(SweepError) as refused:
        load_for_cluster("quickstart", [f"cluster.{override}"])
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"--set cluster.{override.partition(chr(61))[0]}: ")
    assert said in line
    assert "hunter2" not in line


def test_other_options_of_sbatch_are_accepted() -> None:
    given = ("--constraint=a100", "--constraint a100", "--comment='two words'", "--exclusive", "--mem-per-gpu=8G")
    options = ", ".join(f'"{option}"' for option in given)
    assert load_for_cluster("quickstart", [f"cluster.slurm.options=[{options}]"]).cluster.slurm.options == given
