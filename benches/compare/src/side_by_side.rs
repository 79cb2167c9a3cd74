//! dynosim and the reference on the same workloads, in turn.

use serde_json::Value;

use crate::error::Failure;
use crate::spread::Runs;
use crate::workloads::{Deployment, Layout, Programs, Workload};
use crate::{is_wanted, print, tell};

/// Two results agree if their mean TTFTs differ by at most this share.
const TOLERANCE: f64 = 1e-6;
/// Likewise, where ties are broken at random.
const TOLERANCE_WITH_TIES: f64 = 0.02;

/// Runs all wanted workloads and prints a row for each.
pub fn run(programs: &Programs<'_>, workloads: &[Workload], runs: u32, only: &[String]) -> Result<(), Failure> {
    let wanted: Vec<&Workload> = workloads.iter().filter(|workload| is_wanted(workload.name, only)).collect();
    if wanted.is_empty() {
        let names: Vec<&str> = workloads.iter().map(|workload| workload.name).collect();
        return Err(Failure::new(format!("no workload has such a name; there are {}", names.join(", "))));
    }
    print(
        "| workload | dynosim wall (s) | reference wall (s) | **times faster** | CPU (s) | peak memory (MiB) | same results |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | --- |\n",
    )?;
    for workload in wanted {
        print(&row(programs, workload, runs)?)?;
    }
    Ok(())
}

fn row(programs: &Programs<'_>, workload: &Workload, runs: u32) -> Result<String, Failure> {
    let (mut ours, mut theirs) = (Runs::default(), Runs::default());
    let mut agreement = Agreement::of(workload.layout);
    for run in 0..=runs {
        let deployment = Deployment { layout: workload.layout, ..Deployment::default() };
        let (our_cost, our_report) = programs.run_dynosim(&workload.traffic, &deployment, false)?;
        let (their_cost, their_report) = programs.run_peer(workload)?;
        let what = if run == 0 { "warm-up".to_owned() } else { format!("run {run} of {runs}") };
        tell(&format!("{}: {what}: {:.3} s, {:.3} s", workload.name, our_cost.wall_s, their_cost.wall_s));
        agreement.check(&our_report["summary"], &their_report["report"]);
        if run > 0 {
            ours.add(our_cost);
            theirs.add(their_cost);
        }
    }
    Ok(format!(
        "| {} | {} | {} | **{:.1}** | {:.2} : {:.2} | {:.0} : {:.0} | {} |\n",
        workload.title,
        ours.wall_s().cell(),
        theirs.wall_s().cell(),
        theirs.wall_s().median / ours.wall_s().median,
        ours.cpu_s().median,
        theirs.cpu_s().median,
        ours.peak_mib().median,
        theirs.peak_mib().median,
        agreement.verdict(),
    ))
}

/// Whether two programs have simulated the same thing.
#[derive(Clone, Debug)]
struct Agreement {
    /// How far means may be apart, relative to them.
    tolerance: f64,
    completed: Option<u64>,
    largest_difference: f64,
    contradiction: Option<String>,
}

impl Agreement {
    /// The reference's KV router breaks ties at random, so that no two of its runs agree exactly.
    fn of(layout: Layout) -> Self {
        let tolerance = if layout == Layout::RoundRobin { TOLERANCE } else { TOLERANCE_WITH_TIES };
        Self { tolerance, completed: None, largest_difference: 0.0, contradiction: None }
    }

    fn check(&mut self, ours: &Value, theirs: &Value) {
        let completed = |figures: &Value| figures["completed_requests"].as_u64();
        let ttft_ms = |figures: &Value| figures["mean_ttft_ms"].as_f64().unwrap_or(f64::NAN);
        self.completed = completed(ours);
        if completed(ours).is_none() || completed(ours) != completed(theirs) {
            let shown = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
            let counts = format!("completed {} : {}", shown(completed(ours)), shown(completed(theirs)));
            self.contradiction.get_or_insert(counts);
        }
        let difference = (ttft_ms(ours) - ttft_ms(theirs)).abs() / ttft_ms(theirs);
        self.largest_difference = self.largest_difference.max(difference);
        // The negation is true of NaN as well.
        if !matches!(difference.partial_cmp(&self.tolerance), Some(std::cmp::Ordering::Less)) {
            let means = format!("mean TTFT {:.6} : {:.6} ms", ttft_ms(ours), ttft_ms(theirs));
            self.contradiction.get_or_insert(means);
        }
    }

    fn verdict(&self) -> String {
        match &self.contradiction {
            Some(what) => format!("**no**: {what}"),
            None => format!(
                "yes: {} completed, mean TTFT within {:.0e}",
                self.completed.unwrap_or_default(),
                self.largest_difference.max(1e-15)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(ours: Value, theirs: Value) -> String {
        let mut agreement = Agreement::of(Layout::RoundRobin);
        agreement.check(&ours, &theirs);
        agreement.verdict()
    }

    #[test]
    fn results_agree_up_to_the_tolerance() {
        let figures =
            |completed: u64, ttft_ms: f64| json!({ "completed_requests": completed, "mean_ttft_ms": ttft_ms });
        assert!(verdict(figures(5, 100.0), figures(5, 100.00001)).starts_with("yes: 5 completed"));
        assert!(verdict(figures(5, 100.0), figures(5, 100.001)).starts_with("**no**: mean TTFT"));
        assert!(verdict(figures(5, 100.0), figures(6, 100.0)).starts_with("**no**: completed 5 : 6"));
    }

    #[test]
    fn missing_figures_never_agree() {
        assert!(verdict(json!({}), json!({})).starts_with("**no**"));
        let completed = json!({ "completed_requests": 5 });
        assert!(verdict(completed.clone(), completed).starts_with("**no**"));
    }
}
