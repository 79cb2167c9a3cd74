//! Rules that span sections.

use super::{Engine, Mode, Planner, PlannerPolicy, Prediction, Problem, Router, TraceFormat};

type Rule = fn(&Prediction) -> Result<(), Problem>;

const RULES: [Rule; 5] =
    [trace_fits_mode, router_has_a_choice, planner_fits_trace, planner_has_bounds, planner_floors_fit_mode];

/// Applies every rule; the first that fails answers.
pub(super) fn check(prediction: &Prediction) -> Result<(), Problem> {
    RULES.iter().try_for_each(|rule| rule(prediction))
}

/// The name of a format whose prompts depend on what the run itself does.
fn growing_format(prediction: &Prediction) -> Option<&'static str> {
    match prediction.traffic.source.trace_format()? {
        TraceFormat::MooncakeDelta => Some("mooncake-delta"),
        TraceFormat::AgenticMooncake => Some("agentic_mooncake"),
        _ => None,
    }
}

fn trace_fits_mode(prediction: &Prediction) -> Result<(), Problem> {
    match growing_format(prediction) {
        Some(format) if prediction.engine.mode == Mode::Disaggregated => {
            Err(Problem::at("", format!("a `{format}` trace needs `engine.mode: aggregated`"))
                .help("change the mode, or use a `mooncake` trace"))
        }
        _ => Ok(()),
    }
}

/// Targets that an aggregated deployment offers the router: every attention rank of every worker.
fn routable_targets(engine: &Engine) -> u64 {
    engine
        .workers
        .aggregated
        .as_ref()
        .map_or(0, |worker| worker.parallelism.replicas.saturating_mul(worker.parallelism.attention_data))
}

fn router_has_a_choice(prediction: &Prediction) -> Result<(), Problem> {
    let engine = &prediction.engine;
    let routes = matches!(prediction.router, Router::KvRouter { .. });
    if routes && engine.mode == Mode::Aggregated && routable_targets(engine) < 2 {
        return Err(Problem::at("router.policy", "`kv_router` needs more than one worker to choose from")
            .help("raise `engine.workers.aggregated.parallelism.replicas`, or use round_robin"));
    }
    Ok(())
}

fn enabled(planner: &Planner) -> bool {
    planner.policy == PlannerPolicy::Enabled
}

fn planner_fits_trace(prediction: &Prediction) -> Result<(), Problem> {
    let is_weka = prediction.traffic.source.trace_format() == Some(TraceFormat::Weka);
    match growing_format(prediction).or(is_weka.then_some("weka")) {
        Some(format) if enabled(&prediction.planner) => {
            Err(Problem::at("planner.policy", format!("a `{format}` trace does not go with a planner"))
                .help("set `policy: disabled`, or remove the section"))
        }
        _ => Ok(()),
    }
}

fn planner_has_bounds(prediction: &Prediction) -> Result<(), Problem> {
    let planner = &prediction.planner;
    let bounded = prediction.evaluation.sla.is_some_and(|sla| sla.ttft_ms.is_some() && sla.itl_ms.is_some());
    if enabled(planner) && planner.enable_throughput_scaling && !bounded {
        return Err(Problem::at("planner", "scaling by throughput needs bounds to keep")
            .help("give `evaluation.sla.ttft_ms` and `itl_ms`, or set `enable_throughput_scaling: false`"));
    }
    Ok(())
}

fn planner_floors_fit_mode(prediction: &Prediction) -> Result<(), Problem> {
    let planner = &prediction.planner;
    let floors = planner.prefill_min_workers.is_some() || planner.decode_min_workers.is_some();
    if floors && prediction.engine.mode == Mode::Aggregated {
        return Err(Problem::at("planner", "an aggregated deployment has no prefill or decode workers")
            .help("use `min_workers`"));
    }
    Ok(())
}
