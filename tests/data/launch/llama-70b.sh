#!/bin/bash
# Llama 3 70B on 16 nodes, in the manner of Megatron-LM's own examples.
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-"16"}
WORLD_SIZE=$(($GPUS_PER_NODE * $NNODES))
MASTER_ADDR=${MASTER_ADDR:-localhost}
CHECKPOINTS=$1 # a path
TP=8
PP=4
PRECISION="bf16"
LOG_DIR=logs/$(date +%Y)
mkdir -p "$LOG_DIR"

LAUNCHER="torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES \
    --master_addr $MASTER_ADDR --node_rank $NODE_RANK"

MODEL_ARGS=(
    --num-layers 80
    --hidden-size 8192
    --ffn-hidden-size 28672
    --num-attention-heads 64
    --group-query-attention
    --num-query-groups 8
    --seq-length 8192
    --max-position-embeddings 8192
    --position-embedding-type rope --rotary-base 500000   # theta
    --normalization RMSNorm --swiglu --disable-bias-linear
    --untie-embeddings-and-output-weights
    --attention-dropout 0.0 --hidden-dropout 0.0
    --tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Meta-Llama-3-70B
    --vocab-size 128256
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size ${TP}
    --pipeline-model-parallel-size $PP
    --num-layers-per-virtual-pipeline-stage $((80 / PP / 4))
    --sequence-parallel
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
)
if [[ "$PRECISION" == "bf16" ]]; then
    TRAIN_ARGS="--bf16"
elif [ "$PRECISION" = fp16 ]; then
    TRAIN_ARGS="--fp16"
else
    echo "unknown precision"; exit 1
fi
TRAIN_ARGS="$TRAIN_ARGS --micro-batch-size 1 --global-batch-size 512 --lr 1.5e-4 --weight-decay 0.1 \
    --train-iters 5000 --recompute-activations"
if [ -n "${WANDB_API_KEY}" ]; then
    TRAIN_ARGS+=" --wandb-project llama"
fi

run_cmd="$LAUNCHER pretrain_gpt.py ${MODEL_ARGS[@]} ${PARALLEL_ARGS[*]} $TRAIN_ARGS \
    --save $CHECKPOINTS --load $CHECKPOINTS --data-path \"$DATA/a_text_document\" "
echo $run_cmd | tee "$LOG_DIR/command.txt"
eval $run_cmd 2>&1 | tee $LOG_DIR/log.txt
