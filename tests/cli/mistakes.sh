#!/bin/sh
# mistakes.sh FOLDER: newcomers' mistakes, one a line, and what distsim answers. Each answer names the
# fix. mistakes.test holds the answers to mistakes.expected; after a change of a message
#     PATH=$PWD/build:$PATH sh tests/cli/mistakes.sh "$(mktemp -d)" >tests/cli/mistakes.expected
# writes the answers again, to read the difference. base.dir and llama.dir are right; an edit of sed
# makes the mistake.
library=$(pwd)/scenarios
cd "$1" || exit 3

cat >base.dir <<'END'
dir 1
import "topologies/dgx-a100.dir"
param layers = 8, width = 2048, batch = 8192

func @mlp(%x: f32[batch@dp, width]) -> f32[batch, width] {
  %y = for l in 0..layers carry (%h: f32[batch, width] = %x) {
    weight %w1 : f32[width, 3 * width@tp]
    weight %w2 : f32[3 * width@tp, width]
    %up = matmul(%h, %w1) : f32[batch, 3 * width]
    %act = gelu(%up) : f32[batch, 3 * width]
    %down = matmul(%act, %w2) : f32[batch, width]
    yield %down
  } : f32[batch, width]
  return %y
}

scenario {
  title = "An MLP"
  model = @mlp
  on = @dgx_a100
  train { loss = mse, optimizer = adam, dtype = bf16 }
  strategy { dp = 2, tp = 4 }
}
END
cat >llama.dir <<'END'
dir 1
import "models/llama.dir"
import "topologies/dgx-a100.dir"
scenario {
  model = @llama
  on = @dgx_a100
  train { optimizer = adam, dtype = bf16 }
  strategy { dp = 1, tp = 8 }
}
END
cat >box.dir <<'END'
dir 1
topology @box {
  device gpu[2] : "A100-SXM4-80GB"
  link gpu[0] -- gpu[1] : 300 GB/s, 2 us
}
END
cat >sweep.dir <<'END'
dir 1
import "models/llama.dir"
import "topologies/dgx-a100.dir"
scenario {
  model = @llama
  on = @dgx_a100
  train { optimizer = adam, dtype = bf16 }
}
sweep {
  dp in [1, 2], tp in [4, 8]
  where dp * tp == 8
  minimize step_time
}
END
sed 's/gpu\[1\]/gpu[2]/' box.dir >bad.dir
echo '{"model_type": "llama"}' >config.json
echo 'dp,tp' >table.csv

answer() { # VERB [ARGUMENT]...
    distsim "$@" 2>&1 >/dev/null | sed "s,$library,LIBRARY,g"
}
base() { # SED: base.dir with a mistake
    printf '\n$ base %s\n' "$1"
    sed "$1" base.dir >mine.dir
    answer check mine.dir
}
box() {
    printf '\n$ box %s\n' "$1"
    sed "$1" box.dir >mine.dir
    answer check mine.dir
}
sweep() {
    printf '\n$ sweep %s\n' "$1"
    sed "$1" sweep.dir >mine.dir
    answer check mine.dir
}
cli() { # a command line
    printf '\n$ distsim %s\n' "$*"
    answer "$@"
}

# ---- the file ----
base '1d'
base '1s/.*/version 1/'
base '2s/.*/import topologies\/dgx-a100.dir/'
base "2s/\"/'/g"
base '2s/import/include/'
base '2s/topologies/topology/'
base '2s/dgx-a100.dir/dgx_a100/'
base '2d'
base '2s/a100/h100/'
base '2s/$/;/'
base '4s/^/# a comment/'
base '4s/^/\/* a comment *\//'
# ---- blocks and names ----
base '$d'
base '15d'
base '21s/ }$//'
base 's/func @mlp/func mlp/'
base 's/func @mlp/def @mlp/'
base 's/model = @mlp/model = mlp/'
base 's/model = @mlp/model = @mpl/'
base 's/on = @dgx_a100/on = "topologies\/dgx-a100.dir"/'
base 's/on = @dgx_a100/on = dgx-a100/'
base 's/on = @dgx_a100/cluster = @dgx_a100/'
base 's/optimizer = adam/optimizer = @adam/'
base 's/optimizer = adam/optimizer = Adam/'
base 's/optimizer = adam/optim = adam/'
# ---- numbers ----
base '3s/8192/8k/'
base '3s/8192/1e4/'
base '3s/8192/8,192/'
base '3s/layers = 8/layers: 8/'
base '3s/param //'
base '3s/8192/8192 MB/'
# ---- operations ----
base 's/gelu/swish/'
base 's/gelu/GELU/'
base 's/-> f32/-> float32/'
base 's/dtype = bf16/dtype = bfloat16/'
base 's/dtype = bf16/dtype = half/'
base 's/matmul(%h, %w1)/matmul(%w1, %h)/'
base 's/matmul(%h, %w1)/matmul(%h, %w2)/'
base 's/matmul(%h, %w1)/matmul(h, w1)/'
base 's/matmul(%h, %w1)/%h * %w1/'
base 's/%up = matmul/up = matmul/'
base 's/return %y/return y/'
base 's/0..layers/range(layers)/'
base 's/f32\[batch@dp, width\]/f32(batch, width)/'
base 's/width@tp/width@mp/'
# ---- the strategy ----
base 's/dp = 2/fsdp = 2/'
base 's/dp = 2/ddp = 2/'
base 's/dp = 2/data_parallel = 2/'
base 's/dp = 2/dp == 2/'
base 's/dp = 2/dp = -2/'
base 's/dp = 2/dp = "2"/'
base 's/dp = 2/dp = 4/'
base 's/dp = 2/zero = 4/'
base 's/dp = 2/sp = True/'
base 's/dp = 2/schedule = 1f1b/'
base 's/dp = 2/schedule = zb-h1/'
base 's/dp = 2/micro_batch_size = 2/'
base 's/dp = 2/gradient_accumulation_steps = 2/'
base 's/dp = 2/activation_checkpointing = full/'
base 's/dp = 2/profile = "A100-SXM4-80GB"/'
base 's/dp = 2, tp/dp = 2 tp/'
base 's/title/strategy.dp/'
# ---- machines ----
box 's/300 GB/300 GBp/; s/GBp.s/GBps/'
box 's/300 GB.s/2400 Gbit\/s/'
box 's/2 us/2/'
box 's/device/gpu/'
# ---- sweeps ----
sweep 's/dp in/dp =/'
sweep 's/\[1, 2\]/1:2/'
sweep 's/where dp \*/where strategy.dp */'
sweep 's/==/=/'
sweep 's/step_time/steptime/'
sweep 's/minimize/minimise/'
# ---- the command line ----
cli base.dir
cli rnu base.dir
cli simulate base.dir
cli run config.json
cli run table.csv
cli run box.dir
cli run missing.dir
cli topo bad.dir
cli run base.dir --jsn
cli run base.dir --dp 4
cli run llama.dir --set zero=3
cli run llama.dir --set batch=4k
cli run llama.dir --set layerss=4
cli run llama.dir --set strategy.zerro=3
cli run llama.dir --set train.dtype=fp16
cli run llama.dir --set strategy.dp=2
cli run llama.dir --set strategy.tp=3
cli run llama.dir --set strategy.tp=5 --set vocab=32005
cli run llama.dir --set strategy.microbatches=3
cli run base.dir --set width=3037000500
