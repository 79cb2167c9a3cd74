//! KV capacities against those of the reference's estimator, term by term.

use dynosim::perf_data::{DataFiles, folder_of, hardware, model};
use dynosim_schemas::config::{Backend, Parallelism};
use dynosim_systems::timing::Served;

const COLUMNS: &str = "model,hardware,backend,version,tp,pp,dp,moe_tp,moe_ep,max_num_tokens,fraction_kind,fraction,\
                       capacity_bytes,weights,activations,others,nccl,total_kv_bytes,kv_bytes_per_token,\
                       total_kv_tokens,blocks64";

#[test]
fn every_term_of_nineteen_capacities() {
    let files = DataFiles::default();
    let text = include_str!("perf/kv_capacity.csv");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(COLUMNS));
    let mut rows = 0;
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |column: usize| fields[column].parse::<u64>().unwrap_or(1);
        let (model, hardware) = (model(&files, fields[0]).unwrap(), hardware(&files, fields[1]).unwrap());
        let backends = [Backend::Vllm, Backend::Sglang, Backend::Trtllm];
        let backend = backends.into_iter().find(|backend| folder_of(*backend) == fields[2]).unwrap();
        let parallelism = Parallelism {
            replicas: 1,
            tensor: number(4),
            pipeline: number(5),
            attention_data: number(6),
            moe_tensor: number(7),
            moe_expert: number(8),
        };
        let served = Served { model: &model, hardware: &hardware, backend, parallelism: &parallelism };
        assert_eq!(served.check(), Ok(()), "{line}");
        let memory = served.memory(number(9), fields[11].parse().unwrap());
        let kv_bytes = served.kv_bytes();
        let tokens = kv_bytes.tokens_in(memory.kv);
        let terms = [
            memory.capacity,
            memory.weights,
            memory.activations,
            memory.runtime,
            memory.collectives,
            memory.kv,
            kv_bytes.per_token,
            tokens as f64,
            (tokens / 64) as f64,
        ];
        let expected: Vec<f64> = fields[12..].iter().map(|field| field.parse().unwrap()).collect();
        assert_eq!(terms.map(f64::floor).as_slice(), expected, "{line}");
        rows += 1;
    }
    assert_eq!(rows, 19);
}
