//! dynosim alone: how its cost grows with the load.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::Failure;
use crate::mooncake::{self, ROW_BYTES};
use crate::spread::Runs;
use crate::workloads::{Deployment, POOL_BLOCKS, Programs, synthetic_traffic, trace_traffic};
use crate::{is_wanted, print, tell};

/// Bytes of a request in the result, rather too many.
const RESULT_BYTES: u64 = 128;

/// What one figure of growth is about: its name, for `--only`, and how to measure it.
type Part = (&'static str, fn(&Lab<'_>) -> Result<String, Failure>);

const PARTS: [Part; 4] =
    [("requests", requests), ("trace", trace), ("output-length", output_length), ("resident-blocks", resident_blocks)];

/// What every part needs.
struct Lab<'a> {
    programs: &'a Programs<'a>,
    /// Requests at the base size.
    base: u64,
    runs: u32,
}

/// One row: a workload and what it is to be divided by.
struct Case<'a> {
    title: String,
    traffic: Value,
    deployment: &'a Deployment,
    requests: u64,
}

/// Measures all wanted parts and prints their tables.
pub fn run(programs: &Programs<'_>, base: u64, runs: u32, only: &[String]) -> Result<(), Failure> {
    check_disk(programs.folder, base)?;
    let lab = Lab { programs, base, runs };
    let mut measured = 0;
    for (name, part) in PARTS.iter().filter(|(name, _)| is_wanted(name, only)) {
        tell(&format!("growth: {name}"));
        print(&part(&lab)?)?;
        measured += 1;
    }
    if measured == 0 {
        let names = PARTS.map(|(name, _)| name).join(", ");
        return Err(Failure::new(format!("no part of the growth has such a name; there are {names}")));
    }
    Ok(())
}

/// Ten times the requests.
fn requests(lab: &Lab<'_>) -> Result<String, Failure> {
    let deployment = Deployment::default();
    let case = |requests: u64| Case {
        title: format!("synthetic 2048/128, {} requests, concurrency 256", thousands(requests)),
        traffic: synthetic_traffic(2048, 128, requests, 256),
        deployment: &deployment,
        requests,
    };
    lab.compare("Requests", &case(lab.base), &case(10 * lab.base))
}

/// Ten times the rows of a trace.
fn trace(lab: &Lab<'_>) -> Result<String, Failure> {
    let deployment = Deployment::default();
    let mut cases = Vec::new();
    for rows in [lab.base, 10 * lab.base] {
        let path = lab.generate(rows)?;
        cases.push(Case {
            title: format!("Mooncake trace, {} rows, as recorded", thousands(rows)),
            traffic: trace_traffic(&path),
            deployment: &deployment,
            requests: rows,
        });
    }
    lab.compare("Rows of a trace", &cases[0], &cases[1])
}

/// Eight times the output, with the same total length and so the same number of blocks.
fn output_length(lab: &Lab<'_>) -> Result<String, Failure> {
    let deployment = Deployment::default();
    let requests = lab.base / 5;
    let case = |input: u64, output: u64| Case {
        title: format!("synthetic {input}/{output}, {} requests, concurrency 256", thousands(requests)),
        traffic: synthetic_traffic(input, output, requests, 256),
        deployment: &deployment,
        requests,
    };
    lab.compare("Output length at an equal number of blocks", &case(2048, 128), &case(1152, 1024))
}

/// The same work on larger and larger pools, which fill up with cached blocks.
///
/// Making a pool costs time as well; a run of hardly any requests tells how much, and is taken off.
fn resident_blocks(lab: &Lab<'_>) -> Result<String, Failure> {
    const FEW: u64 = 16;
    let requests = lab.base / 5;
    let mut text = format!(
        "\n### Resident blocks\n\nSynthetic 2048/128, {} requests, concurrency 16, one worker, constant pass times. \
         Time per pass is net of the start, a run of {FEW} requests.\n\n\
         | blocks in the pool | wall (s) | start (s) | passes | ns per pass | peak memory (MiB) |\n\
         | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        thousands(requests)
    );
    let mut ns_per_pass = Vec::new();
    for blocks in [1 << 10, POOL_BLOCKS, 1 << 20] {
        let timing = json!({ "type": "fixed", "prefill_ms": 30, "decode_ms": 8 });
        let deployment = Deployment { workers: 1, blocks, timing, ..Deployment::default() };
        let [start, whole] = [FEW, requests].map(|requests| synthetic_traffic(2048, 128, requests, 16));
        let passes = lab.count_passes(&whole, &deployment)?;
        let start = lab.measure(&start, &deployment)?;
        let runs = lab.measure(&whole, &deployment)?;
        let net_ns = (runs.wall_s().median - start.wall_s().median) * 1e9 / passes as f64;
        ns_per_pass.push(net_ns);
        text += &format!(
            "| {} | {} | {:.3} | {} | {net_ns:.0} | {:.0} |\n",
            thousands(blocks),
            runs.wall_s().cell(),
            start.wall_s().median,
            thousands(passes),
            runs.peak_mib().median
        );
    }
    let ratio = ns_per_pass.last().copied().unwrap_or(f64::NAN) / ns_per_pass[0];
    Ok(text + &format!("\nTime per pass × {ratio:.2} from the smallest to the largest pool.\n"))
}

impl Lab<'_> {
    fn compare(&self, heading: &str, small: &Case<'_>, large: &Case<'_>) -> Result<String, Failure> {
        let mut text = format!(
            "\n### {heading}\n\n\
             | workload | wall (s) | µs per request | CPU (s) | peak memory (MiB) |\n\
             | --- | ---: | ---: | ---: | ---: |\n"
        );
        let mut figures = Vec::new();
        for case in [small, large] {
            let runs = self.measure(&case.traffic, case.deployment)?;
            let us_per_request = runs.wall_s().median * 1e6 / case.requests as f64;
            figures.push((us_per_request, runs.peak_mib().median));
            text += &format!(
                "| {} | {} | {us_per_request:.2} | {:.2} | {} |\n",
                case.title,
                runs.wall_s().cell(),
                runs.cpu_s().median,
                runs.peak_mib().cell()
            );
        }
        let [(small_us, small_mib), (large_us, large_mib)] = figures[..] else {
            return Err(Failure::new("two cases give two rows"));
        };
        let (time, memory) = (large_us / small_us, large_mib / small_mib);
        Ok(text + &format!("\nTime per request × {time:.2}, memory × {memory:.2}.\n"))
    }

    /// Runs dynosim once to warm up, then as often as wanted.
    fn measure(&self, traffic: &Value, deployment: &Deployment) -> Result<Runs, Failure> {
        let mut runs = Runs::default();
        for run in 0..=self.runs {
            let (cost, report) = self.programs.run_dynosim(traffic, deployment, false)?;
            tell(&format!("  run {run}: {:.3} s, {:.0} MiB", cost.wall_s, cost.peak_mib));
            let count = |key: &str| report["summary"][key].as_u64();
            if count("num_requests").is_none() || count("num_requests") != count("completed_requests") {
                return Err(Failure::new("not every request was completed; the figures would mean nothing"));
            }
            if run > 0 {
                runs.add(cost);
            }
        }
        Ok(runs)
    }

    fn count_passes(&self, traffic: &Value, deployment: &Deployment) -> Result<u64, Failure> {
        let (_, report) = self.programs.run_dynosim(traffic, deployment, true)?;
        let passes = report["profile"]["passes"].as_u64();
        passes.ok_or_else(|| Failure::new("dynosim's report has no profile.passes"))
    }

    fn generate(&self, rows: u64) -> Result<PathBuf, Failure> {
        let path = self.programs.folder.join(format!("mooncake-{rows}.jsonl"));
        mooncake::write(&path, rows).map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))?;
        let bytes = fs::metadata(&path).map_or(0, |file| file.len());
        tell(&format!("  wrote {} ({} MiB)", path.display(), bytes >> 20));
        Ok(path)
    }
}

/// Refuses to start what would fill the disk.
fn check_disk(folder: &Path, base: u64) -> Result<(), Failure> {
    let needed = 11 * base * ROW_BYTES + 2 * 10 * base * RESULT_BYTES;
    match free_bytes(folder) {
        Some(free) if free < needed => Err(Failure::new(format!(
            "{} has {} MiB left, and this may need {} MiB; choose another place with --folder, or a smaller --base",
            folder.display(),
            free >> 20,
            needed >> 20
        ))),
        _ => Ok(()),
    }
}

#[cfg(target_os = "linux")]
fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = nix::sys::statvfs::statvfs(folder).ok()?;
    Some(disk.blocks_available() * disk.fragment_size())
}

#[cfg(not(target_os = "linux"))]
fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}

/// A count with separators.
fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    groups.iter().map(|group| String::from_utf8_lossy(group)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_separators() {
        assert_eq!([0, 999, 1000, 1_048_576].map(thousands), ["0", "999", "1,000", "1,048,576"]);
    }
}
