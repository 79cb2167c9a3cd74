//! Small random worlds, and what has to hold in every one of them.
//!
//! A world follows from its seed alone. `DYNOSIM_TEST_SEED=17 cargo test --test properties` plays one again.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::random::{Lcg, play_worlds, traffic};
use common::{Desk, Played, Row, predict, start, wait_at_most};
use serde_json::{Value, json};

const WORLDS: u64 = 400;
/// A run takes milliseconds; one that takes this long goes round in circles.
const LONGEST_RUN: Duration = Duration::from_secs(20);

#[test]
fn invariants_hold_in_small_random_worlds() {
    let expected = [
        "completed",
        "completed: stopped_at_context_length",
        "completed: no_output_requested",
        "rejected: prompt_exceeds_kv_pool",
        "rejected: prompt_exceeds_context_length",
        "failed: outgrew_kv_pool",
        "unfinished: virtual_time_limit",
        "preempted",
    ];
    play_worlds(WORLDS, &expected, play_world);
}

/// What a world is made of, as far as the invariants need it.
struct World {
    config: Value,
    block_size: u64,
    blocks: u64,
    max_sequences: u64,
    workers: u64,
    context_length: u64,
    prefix_caching: bool,
    concurrency: Option<u64>,
    requests: u64,
    /// Wait between turns; `None` where every request is alone.
    turn_delay_ms: Option<f64>,
    cutoff_ms: Option<f64>,
}

impl World {
    fn of(lcg: &mut Lcg, desk: &Desk) -> Self {
        let block_size = lcg.one_of(&[2, 5, 16, 48, 64]);
        let blocks = lcg.between(6, 60);
        let pool = block_size * blocks;
        let max_sequences = lcg.between(1, 12);
        let workers = lcg.between(1, 3);
        let context_length = lcg.one_of(&[pool / 2 + 1, pool * 2, 131_072]);
        let prefix_caching = lcg.between(0, 3) > 0;
        let timing = match lcg.between(0, 2) {
            0 => json!({ "type": "fixed", "prefill_ms": lcg.between(0, 20), "decode_ms": lcg.between(1, 5) }),
            _ => json!({ "type": "polynomial" }),
        };
        let worker = json!({
            "parallelism": { "replicas": workers },
            "scheduler": { "max_batched_tokens": lcg.between(1, pool), "max_sequences": max_sequences },
            "kv_cache": {
                "block_size": block_size,
                "prefix_caching": prefix_caching,
                "capacity": { "type": "fixed", "blocks": blocks },
            },
            "timing": timing,
        });
        let (traffic, requests, turn_delay_ms) = traffic(lcg, desk, pool);
        let concurrency = traffic["load"]["concurrency"].as_u64();
        let cutoff_ms = traffic["stop"]["max_virtual_time_seconds"].as_f64().map(|seconds| seconds * 1000.0);
        let mut config = common::config(traffic, worker);
        config["engine"]["context_length"] = json!(context_length);
        Self {
            config,
            block_size,
            blocks,
            max_sequences,
            workers,
            context_length,
            prefix_caching,
            concurrency,
            requests,
            turn_delay_ms,
            cutoff_ms,
        }
    }

    fn blocks_for(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.block_size)
    }
}

/// Plays the world of a seed; says what happened, or which invariant is broken.
fn play_world(seed: u64) -> Result<BTreeMap<String, u64>, String> {
    let desk = Desk::new();
    let world = World::of(&mut Lcg::new(seed), &desk);
    let child = start(&mut predict(&desk.config(&world.config), &desk.out()));
    let finished = wait_at_most(LONGEST_RUN, child).ok_or("it does not come to an end")?;
    if finished.code != Some(0) {
        return Err(format!("exit code {:?}: {}", finished.code, finished.stderr));
    }
    let played = Played::read(&desk.out());
    let checks = [
        books_balance(&world, &played),
        arrivals_are_in_order(&played),
        worker_caps_hold(&world, &played),
        workers_serve_in_turn(&world, &played),
        workers_do_not_idle(&world, &played),
        closed_loop_holds(&world, &played),
        turns_follow_each_other(&world, &played),
    ];
    checks.into_iter().collect::<Result<(), _>>()?;
    for row in &played.rows {
        row_is_sound(&world, row).map_err(|broken| format!("request {}: {broken}", row.int("request_index")))?;
    }
    let mut outcomes = played.outcomes();
    let preempted = played.rows.iter().filter(|row| row.int("preemptions") > 0).count();
    if preempted > 0 {
        outcomes.insert("preempted".to_owned(), preempted as u64);
    }
    Ok(outcomes)
}

fn hold(holds: bool, invariant: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(invariant.to_owned()) }
}

/// Every request that arrived ended in exactly one way, and the summary counts the same.
fn books_balance(world: &World, played: &Played) -> Result<(), String> {
    let rows = played.rows.len() as u64;
    hold(played.figure("num_requests") == rows as f64, "every arrived request has one row")?;
    let statuses = ["completed", "rejected", "failed", "unfinished"];
    for status in statuses {
        let counted = played.rows.iter().filter(|row| row.status() == status).count();
        let said = played.figure(&format!("{status}_requests"));
        hold(said == counted as f64, &format!("{status}: {said} in the summary, {counted} rows"))?;
    }
    let all_end = played.figure("unfinished_requests") == 0.0;
    hold(all_end || world.cutoff_ms.is_some(), "without a cut-off every request ends")?;
    // A failed turn ends its session, so that later turns never arrive.
    let broken_off = world.turn_delay_ms.is_some() && played.figure("failed_requests") > 0.0;
    let may_miss = broken_off || world.cutoff_ms.is_some();
    let all = if may_miss { rows <= world.requests } else { rows == world.requests };
    hold(all, &format!("{} requests were asked for, {rows} arrived", world.requests))?;
    for (name, value) in played.summary() {
        let sane = value.as_f64().is_none_or(|number| number.is_finite() && number >= 0.0);
        hold(sane, &format!("the figure {name} is {value}"))?;
    }
    let figures = played.summary().iter().filter(|(name, _)| !name.starts_with("power"));
    figures.into_iter().try_for_each(|(name, value)| hold(!value.is_null(), &format!("{name} is not a number")))
}

fn arrivals_are_in_order(played: &Played) -> Result<(), String> {
    let numbered = played.rows.iter().enumerate().all(|(index, row)| row.int("request_index") == index as i64);
    hold(numbered, "rows are numbered without gaps")?;
    let sorted = played.rows.is_sorted_by(|a, b| a.float("arrival_ms") <= b.float("arrival_ms"));
    hold(sorted, "rows are in order of arrival")
}

/// When a request leaves the system; never, if the cut-off comes first.
fn end_ms(row: &Row) -> f64 {
    row.float_or_null("end_ms").unwrap_or(f64::INFINITY)
}

/// The rows of each worker, in order of arrival.
fn by_worker(world: &World, played: &Played) -> Vec<Vec<Row>> {
    let of = |worker| played.rows.iter().filter(|row| row.int("worker_id") == worker).cloned().collect();
    (0..world.workers as i64).map(of).collect()
}

/// Requests go round the workers, and each worker admits its own in order of arrival.
fn workers_serve_in_turn(world: &World, played: &Played) -> Result<(), String> {
    for (index, row) in played.rows.iter().enumerate() {
        let next = index as i64 % world.workers as i64;
        hold(row.int("worker_id") == next, &format!("request {index} goes to {}, not {next}", row.int("worker_id")))?;
    }
    for rows in by_worker(world, played) {
        let admits: Vec<_> = rows.iter().filter_map(|row| row.float_or_null("first_admit_ms")).collect();
        hold(admits.is_sorted(), "no request is admitted before one that came earlier")?;
    }
    Ok(())
}

/// A request that finds its worker without others starts at once.
fn workers_do_not_idle(world: &World, played: &Played) -> Result<(), String> {
    for rows in by_worker(world, played) {
        let mut busy_until_ms = f64::NEG_INFINITY;
        let mut previous_arrival_ms = f64::NEG_INFINITY;
        for row in &rows {
            let arrival_ms = row.float("arrival_ms");
            let alone = busy_until_ms <= arrival_ms && previous_arrival_ms < arrival_ms;
            let idle = alone && row.float_or_null("first_admit_ms").is_some_and(|admit_ms| admit_ms != arrival_ms);
            hold(!idle, &format!("request {} waits for an idle worker", row.int("request_index")))?;
            busy_until_ms = busy_until_ms.max(end_ms(row));
            previous_arrival_ms = arrival_ms;
        }
    }
    Ok(())
}

/// The most intervals that overlap. One that ends where another begins does not overlap it.
fn most_at_once(intervals: impl Iterator<Item = (f64, f64)>) -> u64 {
    let mut changes: Vec<(f64, i64)> = intervals.flat_map(|(start, end)| [(start, 1), (end, -1)]).collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let running = changes.iter().scan(0_i64, |level, (_, change)| {
        *level += change;
        Some(*level)
    });
    running.max().unwrap_or(0).max(0) as u64
}

/// No worker runs more sequences than it may.
fn worker_caps_hold(world: &World, played: &Played) -> Result<(), String> {
    if played.figure("preemptions") > 0.0 {
        // Rows do not say when a preempted request was out of the batch.
        return Ok(());
    }
    for rows in by_worker(world, played) {
        let running = rows.iter().filter_map(|row| Some((row.float_or_null("first_admit_ms")?, end_ms(row))));
        let most = most_at_once(running);
        hold(most <= world.max_sequences, &format!("{most} of {} sequences run at once", world.max_sequences))?;
    }
    Ok(())
}

/// No more requests (or sessions) are in the system than the load says.
fn closed_loop_holds(world: &World, played: &Played) -> Result<(), String> {
    let Some(concurrency) = world.concurrency else { return Ok(()) };
    let mut units: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
    for row in &played.rows {
        let (start, end) = (row.float("arrival_ms"), end_ms(row));
        let unit = units.entry(row.int("session_index")).or_insert((start, end));
        *unit = (unit.0.min(start), unit.1.max(end));
    }
    let most = most_at_once(units.into_values());
    hold(most <= concurrency, &format!("{most} of {concurrency} are in the system at once"))
}

/// A turn arrives when the one before has ended and the wait is over, and its prompt is longer.
fn turns_follow_each_other(world: &World, played: &Played) -> Result<(), String> {
    let Some(delay_ms) = world.turn_delay_ms else { return Ok(()) };
    let mut sessions: BTreeMap<i64, Vec<&Row>> = BTreeMap::new();
    played.rows.iter().for_each(|row| sessions.entry(row.int("session_index")).or_default().push(row));
    for (session, turns) in sessions {
        for (index, pair) in turns.windows(2).enumerate() {
            let wait = pair[1].float("arrival_ms") - pair[0].float("end_ms");
            hold((wait - delay_ms).abs() < 1e-6, &format!("session {session} waits {wait} ms, not {delay_ms}"))?;
            hold(pair[1].int("turn_index") == index as i64 + 1, "turns come in order")?;
            hold(pair[1].int("input_tokens") > pair[0].int("input_tokens"), "prompts of a session grow")?;
            hold(pair[0].status() != "failed", "a failed turn ends its session")?;
        }
    }
    Ok(())
}

fn row_is_sound(world: &World, row: &Row) -> Result<(), String> {
    let input = row.int("input_tokens") as u64;
    let requested = row.int("requested_output_tokens") as u64;
    let output = row.int("output_tokens") as u64;
    let admissions = row.int("admissions");
    let preemptions = row.int("preemptions");

    let moments = ["arrival_ms", "first_admit_ms", "first_token_ms", "second_token_ms", "last_token_ms", "end_ms"];
    let times: Vec<f64> = moments.iter().filter_map(|column| row.float_or_null(column)).collect();
    // With exactly one token there is no second one, and with two the second is the last.
    hold(times.is_sorted(), &format!("times are in order: {times:?}"))?;
    let known = |column: &str| row.float_or_null(column).is_some();
    hold(known("first_token_ms") == (output >= 1), "the first token has a time if there is one")?;
    hold(known("second_token_ms") == (output >= 2), "so has the second")?;
    hold(known("last_token_ms") == (output >= 1), "and the last")?;
    hold(output <= requested, "no request gets more than it asked for")?;
    hold((0..world.workers as i64).contains(&row.int("worker_id")), "the worker exists")?;

    let reused = row.int_or_null("reused_tokens").unwrap_or(0) as u64;
    let at_first = row.int_or_null("first_admission_reused_tokens").unwrap_or(0) as u64;
    // After a preemption, generated tokens are found again too.
    let known = if preemptions > 0 { input + output } else { input };
    hold(at_first <= reused && reused <= known, &format!("reuse {at_first}, {reused} of {known} tokens"))?;
    hold(reused.is_multiple_of(world.block_size), "whole blocks are reused")?;
    hold(world.prefix_caching || reused == 0, "nothing is reused without prefix caching")?;
    hold(requested == 0 || at_first < input, "the last prompt token is computed for the first output token")?;

    let last = times.last().copied().unwrap_or(0.0);
    hold(world.cutoff_ms.is_none_or(|cutoff_ms| last <= cutoff_ms), "nothing happens after the cut-off")?;

    let oversized = world.blocks_for(input) > world.blocks;
    let too_long = input >= world.context_length;
    let rejected = row.status() == "rejected";
    let waits = row.status() == "unfinished" && admissions == 0;
    hold(waits || rejected == (oversized || too_long), "exactly prompts that cannot fit are rejected")?;
    match row.outcome().as_str() {
        "completed" => {
            hold(output == requested && requested > 0, &format!("{output} of {requested} tokens"))?;
            hold(admissions == preemptions + 1, "a request comes back after every preemption")
        }
        "completed: no_output_requested" => hold(requested == 0, "a token was asked for"),
        "completed: stopped_at_context_length" => {
            hold(input + output == world.context_length && output < requested, "it has not reached the limit")
        }
        "rejected: prompt_exceeds_context_length" => hold(too_long && admissions == 0, "the prompt is short enough"),
        "rejected: prompt_exceeds_kv_pool" => hold(oversized && admissions == 0, "the prompt fits into the pool"),
        "failed: outgrew_kv_pool" => {
            // The token that does not fit is the one after the last that came out.
            hold(world.blocks_for(input + output) > world.blocks, "it could have gone on")?;
            hold(admissions >= 1 && output < requested, "it had started and not finished")
        }
        "unfinished: virtual_time_limit" => {
            hold(world.cutoff_ms.is_some() && row.float_or_null("end_ms").is_none(), "it has ended")
        }
        other => Err(format!("ends as `{other}`")),
    }
}
