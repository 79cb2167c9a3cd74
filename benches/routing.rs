//! `systems/src/routing/kv_router`: placing a request whose prompt has 24 runs of blocks, half of them cached on one
//! target, and ending it again.

#[path = "support/measure.rs"]
mod measure;

use bevy_ecs::prelude::*;
use criterion::{BenchmarkId, Criterion};
use dynosim_systems::kv::KvEvent;
use dynosim_systems::prefix::PromptIdentity;
use dynosim_systems::routing::kv_router::{KvRouter, KvRouterSpec, RouteRequest, Target};

const BLOCK: u32 = 64;
const TOKENS_PER_ID: u32 = 512;
const IDS: u32 = 24;
/// Different prompts.
const PROMPTS: u64 = 256;

/// Prompts that share nothing with each other.
fn prompts() -> Vec<PromptIdentity> {
    let ids = |prompt: u64| (0..u64::from(IDS)).map(move |id| prompt * 1000 + id).collect::<Vec<u64>>();
    (0..PROMPTS).map(|n| PromptIdentity::from_trace_ids(&ids(n), TOKENS_PER_ID, IDS * TOKENS_PER_ID, n)).collect()
}

fn placement(c: &mut Criterion) {
    let mut group = c.benchmark_group("routing/kv_placement");
    for targets in [4, 64] {
        let workers = (0..targets).map(|worker_id| Target { worker_id, rank: 0 });
        let mut router = KvRouter::new(KvRouterSpec::aggregated(BLOCK), workers);
        let prompts = prompts();
        for (number, prompt) in prompts.iter().enumerate() {
            for run in prompt.runs(BLOCK, 0, IDS / 2 * (TOKENS_PER_ID / BLOCK)) {
                let resident = run.blocks.end - run.blocks.start;
                router.apply(number % targets as usize, KvEvent { run: run.key, resident });
            }
        }
        let request = World::new().spawn_empty().id();
        let mut number = 0;
        group.bench_function(BenchmarkId::new("targets", targets), |b| {
            b.iter(|| {
                number = (number + 1) % prompts.len();
                let route = RouteRequest {
                    request,
                    prompt_tokens: IDS * TOKENS_PER_ID,
                    identity: &prompts[number],
                    priority: 0.0,
                    arrival_ms: 0.0,
                    preferred_rank: None,
                };
                let decision = router.submit(&route, 0.0);
                router.ended(request, 0.0);
                decision.map(|decision| decision.target)
            });
        });
    }
    group.finish();
}

fn main() {
    measure::run(&[placement]);
}
