"""A papermill engine without a kernel: ``papermill --engine warm`` runs the cells in a forked process."""

from typing import Any

from papermill.engines import Engine

from buildcompare.config.errors import ExecutionError
from buildcompare.report import warm

NAME = "warm"


class WarmEngine(Engine):  # type: ignore[misc]  # papermill has no types
    """Runs cells in a child of the fork server, or where this process is one, here."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **_: object) -> None:
        """Run the notebook, as papermill asks its engines to."""
        from buildcompare.report.shell import LANGUAGE, CellRun, run_cells

        cells, now = nb_man.nb.cells, ""
        nb_man.nb.metadata["language_info"] = LANGUAGE

        def hear(run: CellRun) -> None:
            nonlocal now
            cell, now = cells[run.index], f"cell {run.count}"
            if run.outputs is None:
                nb_man.cell_start(cell, run.index)
                return
            cell.outputs, cell.execution_count = run.outputs, run.count
            if run.failed:
                nb_man.cell_exception(cell, cell_index=run.index)
            nb_man.cell_complete(cell, cell_index=run.index)

        if warm.is_child():
            for run in run_cells(cells):
                hear(run)
                warm.tell(run.count)
            return
        try:
            warm.in_child(_told, cells, hear=hear)
        except ExecutionError as error:
            raise ExecutionError(f"{now}: {error}" if now else str(error)) from None


def _told(cells: Any) -> None:
    from buildcompare.report.shell import run_cells

    for run in run_cells(cells):
        warm.tell(run)
