"""Compare all variants of a matrix: contrasts, effects of factors, ranks, and what somebody concluded."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Catalogue, Metric, read_catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.variants import Claim, VariantRun, Variants
from buildcompare.metrics.measurements import level_of
from buildcompare.recordings import pgbench
from buildcompare.recordings.files import read_input
from buildcompare.recordings.recording import FloatArray, Measurement
from buildcompare.results.codes import Better, ClaimStatus, Status, Verdict
from buildcompare.results.variants import (
    ClaimResult,
    ContrastResult,
    EffectResult,
    OperationResult,
    RankResult,
    TermResult,
    VariantRunResult,
    VariantsResult,
    listed_levels,
)
from buildcompare.stats.effects import Effect, holm, judge
from buildcompare.stats.planning import ALPHA, percent
from buildcompare.variants import model, ranking
from buildcompare.variants.model import Cell, CellMeans

SMALLEST = 1e-100  # of a value, and the largest is one over it: ratios of further ones are no numbers
MOST_CELLS = 200  # a matrix with more is a search, not a comparison


def catalogue_of(params: Variants) -> Catalogue:
    """What the runs measure: the operations, and what the catalogue holds beside them."""
    if params.metrics is None:
        return Catalogue(metrics=tuple(each.metric(name) for name, each in params.operations.items()))
    try:
        return read_catalogue(params.metrics).with_operations(params.operations)
    except InputError as error:
        raise params.fault_at(("metrics",), error) from None


@dataclass(frozen=True)
class MeasuredRun:
    """One run of a cell, as the params or a file hold it."""

    cell: Cell
    measurements: Sequence[Measurement]
    block: str | None
    facts: Mapping[str, float | str]
    source: str | None = None

    def value(self, metric: Metric) -> float | None:
        """The level of a metric; None where it was not measured, or is not positive."""
        found = self._values(metric)
        level = None if found is None or self.has_zero(metric) else level_of(found, metric.unit).value
        return level if level is not None and level > 0 else None

    def has_zero(self, metric: Metric) -> bool:
        """Whether a value of a metric is 0, of which there is no ratio."""
        found = self._values(metric)
        return found is not None and bool((found <= 0).any())

    def _values(self, metric: Metric) -> FloatArray | None:
        return next((each.values for each in self.measurements if each.metric == metric.slug), None)


def read_runs(params: Variants, catalogue: Catalogue) -> list[MeasuredRun]:
    """Every run; of a file of pgbench each summary is one."""
    made: list[MeasuredRun] = []
    for i, run in enumerate(params.runs):
        fault_at = partial(_fault_of_run, params, i)
        for levels, measured, facts, source in of_run(run, params.factors, catalogue, fault_at):
            missing = [name for name in params.factors if name not in levels]
            if missing:
                expected = f"a level of {missing[0]!r} ({', '.join(params.factors[missing[0]])})"
                fault = InputError(file=source, key=None, expected=expected, found="none")
                raise params.fault_at(("runs", i), fault)
            cell = tuple(levels[name] for name in params.factors)
            made.append(MeasuredRun(cell, measured, run.block, {**facts, **run.facts}, source))
    if len({run.cell for run in made}) > MOST_CELLS:
        raise InputError(file=None, key="runs", expected=f"at most {MOST_CELLS} variants", found="more")
    if len({run.cell for run in made}) < 2:
        raise InputError(file=None, key="runs", expected="runs of two variants or more", found="one")
    places = [list(params.factors).index(name) for name in params.treatments]
    base = tuple(params.baseline[name] for name in params.treatments)
    if all(tuple(run.cell[i] for i in places) != base for run in made):
        fault = InputError(file=None, key=None, expected=f"a run of the baseline ({', '.join(base)})", found="none")
        raise params.fault_at(("baseline",), fault)
    return made


_Read = tuple[dict[str, str], Sequence[Measurement], dict[str, float | str], str | None]


def _fault_of_run(params: Variants, i: int, within: tuple[str, ...], error: InputError) -> InputError:
    return params.fault_at(("runs", i, *within), error)


def of_run(
    run: VariantRun,
    factors: Mapping[str, Sequence[str]],
    catalogue: Catalogue,
    fault_at: Callable[[tuple[str, ...], InputError], InputError] = lambda _, error: error,
) -> Iterator[_Read]:
    """Levels, measurements, facts and place of each run that `run` holds; `fault_at` says where in it a fault is."""
    if run.values is not None:
        values = [(name, np.atleast_1d(np.asarray(given, dtype=np.float64))) for name, given in run.values.items()]
        for name, given in values:
            wrong = next((each for each in given if each and not SMALLEST <= each <= 1.0 / SMALLEST), None)
            if wrong is not None:
                fault = InputError(file=None, key=None, expected="numbers from 1e-100 to 1e100", found=f"{wrong:g}")
                raise fault_at(("values", name), fault)
        yield run.levels, [Measurement.of(name, found, catalogue) for name, found in values], {}, None
        return
    try:
        found = pgbench.summaries(read_input(str(run.pgbench), expected=pgbench.EXPECTED))
    except InputError as error:
        raise fault_at(("pgbench",), error) from None
    for summary in found:
        stated = {name: str(value) for name, value in summary.settings.items() if name in factors}
        place = f"{run.pgbench}, line {summary.line}"
        for name, level in stated.items():
            if level not in factors[name] or run.levels.get(name, level) != level:
                expected = f"{name} {run.levels.get(name) or ' or '.join(factors[name])}"
                fault = InputError(file=place, key=None, expected=expected, found=level)
                raise fault_at(("pgbench",), fault)
        yield {**stated, **run.levels}, pgbench.measured(summary, catalogue), dict(summary.settings), place


def compare_cells(params: Variants, runs: Sequence[MeasuredRun], catalogue: Catalogue) -> VariantsResult:
    """Every analysis of a matrix, operation by operation; what is judged is adjusted over all of them."""
    cells = sorted({run.cell for run in runs}, key=lambda cell: _place(params, cell))
    names = {cell: _name(params, cell) for cell in cells}
    measured = {each.metric for run in runs for each in run.measurements}
    metrics = [m for m in catalogue.metrics if m.slug in measured and m.better != Better.NEUTRAL]
    operations, claims = list[OperationResult](), list[ClaimResult]()
    terms, effects, ranks = list[TermResult](), list[EffectResult](), list[RankResult]()
    contrasts: list[tuple[ContrastResult, Effect | None, Metric]] = []
    for metric in metrics:
        zero = next((run for run in runs if metric.gate and run.has_zero(metric)), None)
        if zero:
            operations.append(_operation(metric, None, zero_in=names[zero.cell]))
            continue
        rows = [(run.cell, value, run.block or "") for run in runs if (value := run.value(metric)) is not None]
        table = pd.DataFrame(rows, columns=["cell", "value", "block"])
        if table["cell"].nunique() < 2:
            continue
        stated = metric.run_sd_percent.benchmark
        run_sd = None if stated is None else math.log1p(stated / 100.0)
        means = model.cell_means(table.assign(log=np.log(table["value"])), run_sd=run_sd)
        operations.append(_operation(metric, means))
        if not metric.gate:
            continue
        contrasts += _contrasts(params, metric, means, names)
        of_terms, of_effects = _effects(params, metric, means)
        terms, effects = [*terms, *of_terms], [*effects, *of_effects]
        ranks += _ranks(params, metric, means, names)
        claims += [_claim(params, i, each, metric, means, names) for i, each in _claims_of(params, metric, catalogue)]
    return VariantsResult(
        factors=params.factors,
        baseline=params.baseline,
        workload=params.workload,
        variants={names[cell]: dict(zip(params.factors, cell, strict=True)) for cell in cells},
        operations=operations,
        runs=[_run(run, names, params, metrics) for run in runs],
        contrasts=_adjusted(contrasts),
        terms=_proven(terms),
        effects=effects,
        ranking=ranks,
        claims=claims,
    )


def verdict_of(result: VariantsResult) -> Verdict:
    """Regression where a variant is surely worse than the baseline; pass where each is decided beside it."""
    rows = result.beside_baseline
    statuses = {row.status for row in rows}
    if Status.REGRESSION in statuses:
        return Verdict.REGRESSION
    alone = {(row.operation, row.variant) for row in result.contrasts} - {(row.operation, row.variant) for row in rows}
    open_ = alone or not rows or Status.INCONCLUSIVE in statuses or any(each.zero_in for each in result.operations)
    return Verdict.INCONCLUSIVE if open_ else Verdict.PASS


def _place(params: Variants, cell: Cell) -> tuple[object, ...]:
    """The order of reports: by workload, the baseline first."""
    levels = dict(zip(params.factors, cell, strict=True))
    work = tuple(params.factors[name].index(levels[name]) for name in params.workload)
    own = tuple((levels[n] != params.baseline[n], params.factors[n].index(levels[n])) for n in params.treatments)
    return (*work, *own)


def _name(params: Variants, cell: Cell) -> str:
    levels = dict(zip(params.factors, cell, strict=True))
    known = next((name for name, of in params.names.items() if of == levels), None)
    choice, task = (listed_levels({name: levels[name] for name in of}) for of in (params.treatments, params.workload))
    return known or (f"{choice} ({task})" if task else choice)


def _operation(metric: Metric, means: CellMeans | None, *, zero_in: str | None = None) -> OperationResult:
    named = metric.model_dump(include={"slug", "name", "unit", "better", "gate", "margin_percent"})
    if means is None:
        return OperationResult(**named, model="none", zero_in=zero_in)
    if not means.known:
        return OperationResult(**named, model="none", unjudged=means.unjudged)
    return OperationResult(
        **named,
        model="mixed" if means.mixed else "linear",
        run_sd_percent=percent(math.sqrt(means.variance)),
        block_sd_percent=percent(math.sqrt(means.mixed.between)) if means.mixed else None,
        noise_source=means.source,
    )


def _run(run: MeasuredRun, names: Mapping[Cell, str], params: Variants, metrics: Sequence[Metric]) -> VariantRunResult:
    values = {metric.slug: value for metric in metrics if (value := run.value(metric)) is not None}
    levels = dict(zip(params.factors, run.cell, strict=True))
    facts = {name: value for name, value in run.facts.items() if name not in levels}
    return VariantRunResult(
        variant=names[run.cell], levels=levels, block=run.block, values=values, facts=facts, source=run.source
    )


def _pairs(params: Variants, cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """Each variant with the baseline of the same task, and with each that differs in one choice from it."""
    there, pairs = set(cells), dict[tuple[Cell, Cell], None]()
    free = [list(params.factors).index(name) for name in params.treatments]
    bases = {i: params.baseline[name] for i, name in zip(free, params.treatments, strict=True)}
    for cell in sorted(cells, key=lambda each: _place(params, each)):
        for moved in (bases, *({i: level} for i, level in bases.items())):
            other = tuple(moved.get(i, level) for i, level in enumerate(cell))
            if other != cell and other in there:
                pairs[cell, other] = None
    return [*pairs]


def _contrasts(
    params: Variants, metric: Metric, means: CellMeans, names: Mapping[Cell, str]
) -> list[tuple[ContrastResult, Effect | None, Metric]]:
    found = []
    for cell, other in _pairs(params, means.cells):
        contrast = model.between_cells(means, cell, other)
        log_ratio = float(contrast @ means.means)
        base, new = (math.exp(means.means[means.index[each]]) for each in (other, cell))
        row = ContrastResult(
            operation=metric.slug,
            variant=names[cell],
            against=names[other],
            differs_in=[name for name, a, b in zip(params.factors, cell, other, strict=True) if a != b],
            base=base,
            new=new,
            delta_percent=percent(log_ratio),
            times_better=new / base if metric.better == Better.HIGHER else base / new,
            status=Status.INCONCLUSIVE,
            chance_sd_percent=ranking.chance_sd(log_ratio, _runs(means, cell, other)),
            runs_needed=ranking.runs_needed(log_ratio),
        )
        found.append((row, means.effect(contrast), metric))
    return found


def _runs(means: CellMeans, *cells: Cell) -> float:
    """Runs of each cell: twice the harmonic sum."""
    return 2.0 / sum(1.0 / float(means.counts[means.index[cell]]) for cell in cells)


def _adjusted(found: Sequence[tuple[ContrastResult, Effect | None, Metric]]) -> list[ContrastResult]:
    known = [effect for _, effect, _ in found if effect]
    adjusted = iter(holm([effect.p_value for effect in known]))
    rows = []
    for row, effect, metric in found:
        if effect is None:
            rows.append(row)
            continue
        p_adjusted = float(next(adjusted))
        tested = judge(effect, metric.margin_percent, metric.better, p_adjusted, size=float(len(known)))
        told = {name: value for name, value in tested.deciding_row().items() if name in ContrastResult.model_fields}
        rows.append(row.model_copy(update={**told, "p_adjusted": p_adjusted}))
    return rows


def _effects(params: Variants, metric: Metric, means: CellMeans) -> tuple[list[TermResult], list[EffectResult]]:
    """Main effects of the choices, and how each pair of factors acts together (two workloads set no choice)."""
    factors = list(params.factors)
    bases = model.reference_levels(params.factors, params.baseline, means)
    every: list[tuple[int, ...]] = [(i,) for i, name in enumerate(factors) if name not in params.workload]
    every += [
        pair
        for pair in itertools.combinations(range(len(factors)), 2)
        if not {factors[i] for i in pair} <= set(params.workload)
    ]
    terms, effects = [], []
    for places in every:
        named = [factors[i] for i in places]
        rows, contrasts = [], []
        for levels in itertools.product(*([lv for lv in params.factors[factors[i]] if lv != bases[i]] for i in places)):
            of = tuple(bases[i] for i in places)
            if len(places) == 1:
                contrast = model.main_effect(means, places[0], levels[0], of[0])
            else:
                contrast = model.interaction(means, (places[0], places[1]), levels, of)
            if contrast is None:
                continue
            effect = means.effect(contrast)
            low, high = effect.interval() if effect else (None, None)
            size = percent(float(contrast @ means.means))
            told = {"operation": metric.slug, "factors": named, "levels": levels, "bases": of, "delta_percent": size}
            rows.append(EffectResult.model_validate({**told, "ci_low": low, "ci_high": high}))
            contrasts.append(contrast)
        if not rows:
            continue
        tested = means.test(np.array(contrasts))
        df, p_value = tested or (None, None)
        largest = max((row.delta_percent for row in rows), key=lambda size: abs(math.log1p(size / 100.0)))
        head = {"operation": metric.slug, "factors": named, "df": df, "p_value": p_value, "largest_percent": largest}
        terms.append(TermResult.model_validate(head))
        effects += rows
    return terms, effects


def _proven(terms: Sequence[TermResult]) -> list[TermResult]:
    known = [term.p_value for term in terms if term.p_value is not None]
    adjusted = iter(holm(known))
    made = []
    for term in terms:
        p_adjusted = None if term.p_value is None else float(next(adjusted))
        proven = p_adjusted is not None and p_adjusted < ALPHA
        made.append(term.model_copy(update={"p_adjusted": p_adjusted, "proven": proven}))
    return made


def _ranks(params: Variants, metric: Metric, means: CellMeans, names: Mapping[Cell, str]) -> Iterator[RankResult]:
    places = [list(params.factors).index(name) for name in params.workload]
    for task in dict.fromkeys(tuple(cell[i] for i in places) for cell in means.cells):
        cells = [cell for cell in means.cells if tuple(cell[i] for i in places) == task]
        for rank in ranking.rank_cells(means, cells, metric.better) if len(cells) > 1 else ():
            yield RankResult(
                operation=metric.slug,
                workload=dict(zip(params.workload, task, strict=True)),
                variant=names[rank.cell],
                level=math.exp(means.means[means.index[rank.cell]]),
                first=rank.first,
                last=rank.last,
                runs_to_next=rank.runs_to_next,
            )


def _claims_of(params: Variants, metric: Metric, catalogue: Catalogue) -> Iterator[tuple[int, Claim]]:
    return ((i, each) for i, each in enumerate(params.claims) if catalogue.find(each.operation).slug == metric.slug)


def _claim(
    params: Variants, i: int, claim: Claim, metric: Metric, means: CellMeans, names: Mapping[Cell, str]
) -> ClaimResult:
    cells = []
    for key, levels in (("of", claim.of), ("against", {**claim.of, **(claim.against or params.baseline)})):
        cell = tuple(levels.get(name, "") for name in params.factors)
        if cell not in means.index:
            fault = InputError(file=None, key=None, expected=f"levels of a variant in `{key}`", found=", ".join(cell))
            raise params.fault_at(("claims", i), fault)
        cells.append(cell)
    if cells[0] == cells[1]:
        fault = InputError(file=None, key=None, expected="two different variants to compare", found=names[cells[0]])
        raise params.fault_at(("claims", i), fault)
    contrast = model.between_cells(means, cells[0], cells[1])
    log_ratio = float(contrast @ means.means)
    within = metric.margin_percent if claim.says == "same" else None
    effect = means.effect(contrast)
    better = (log_ratio < 0) == (metric.better == Better.LOWER)
    small = abs(log_ratio) <= math.log1p(metric.margin_percent / 100.0)
    agrees = {"better": better, "worse": not better, "same": small, "not_better": not better or small}[claim.says]
    chance = ranking.chance_sd(log_ratio, _runs(means, cells[0], cells[1]))
    low, high = effect.interval() if effect else (None, None)
    found = judge(effect, metric.margin_percent, metric.better).status if effect else None
    holds, contradicted = {
        "better": ({Status.IMPROVEMENT}, {Status.REGRESSION}),
        "worse": ({Status.REGRESSION}, {Status.IMPROVEMENT}),
        "same": ({Status.EQUIVALENT}, {Status.REGRESSION, Status.IMPROVEMENT}),
        "not_better": ({Status.REGRESSION, Status.EQUIVALENT}, {Status.IMPROVEMENT}),
    }[claim.says]
    sure = low is not None and high is not None and low * high > 0
    if found in holds:
        status = ClaimStatus.HOLDS
    elif found in contradicted or (found == Status.EQUIVALENT and sure and not agrees):
        status = ClaimStatus.CONTRADICTED
    elif found == Status.EQUIVALENT:
        status = ClaimStatus.WITHIN_MARGIN
    elif not agrees:
        status = ClaimStatus.DISAGREES
    elif effect is None and claim.says != "same" and not small and chance >= ranking.PLAUSIBLE:
        status = ClaimStatus.LIKELY
    else:
        status = ClaimStatus.UNPROVEN
    return ClaimResult(
        says=claim.says,
        operation=metric.slug,
        variant=names[cells[0]],
        against=names[cells[1]],
        text=claim.text,
        delta_percent=percent(log_ratio),
        ci_low=low,
        ci_high=high,
        status=status,
        chance_sd_percent=None if claim.says == "same" else chance,
        runs_needed=ranking.runs_needed(log_ratio, same_within=within),
    )
