#!/usr/bin/env bash
# Trains the models that ship with hybridstereo: docs/train_models.sh DATA RUNS
#
# DATA holds Middlebury (2001-2006, MiddEval3) and kitti2015 (see data/README.md), RUNS gets a run
# folder per stage. What is finished is passed over and what was interrupted is resumed, so the
# script can be stopped and started again. It needs some three hours of two cores.
set -euo pipefail
data=$1 runs=$2
hstereo=${HSTEREO:-hstereo}

# Scenes that no model is trained on. Everything said about accuracy was measured on them.
middlebury_kept=Adirondack,Jadeplant,Pipes,Teddy
kitti_kept=000001_10,000005_10,000009_10,000013_10,000017_10,000021_10,000025_10

# What a model is trained on, and the figure that picks its best state.
general=(synthetic:1,middlebury:2,kitti:2 --root middlebury="$data" --root kitti="$data/kitti2015"
  --val-scenes "$middlebury_kept,$kitti_kept" --criterion bad2)
middlebury=(synthetic:1,middlebury:4 --root middlebury="$data" --val-scenes "$middlebury_kept")
kitti=(synthetic:1,kitti:4 --root kitti="$data/kitti2015" --val-scenes "$kitti_kept" --criterion d1)
# The grid search looks at fewer scenes: it solves the CRF some 50 times on each.
general_grid=(middlebury,kitti --root middlebury="$data" --root kitti="$data/kitti2015"
  --val-scenes Adirondack,Teddy,000005_10,000021_10 --criterion bad2)
middlebury_grid=(middlebury --root "$data" --val-scenes "$middlebury_kept")
kitti_grid=(kitti --root "$data/kitti2015" --val-scenes 000005_10,000013_10,000021_10 --criterion d1
  --disparities 128)

stage() { # RUN STAGE OPTIONS...
  local run=$runs/$1 stage=$2
  shift 2
  if [[ -e $run/$stage.h5 ]]; then return; fi
  echo "== $run $(date +%H:%M)"
  if [[ -e $run/last.h5 ]]; then
    "$hstereo" train --resume -o "$run"
  else
    "$hstereo" train "$@" --stage "$stage" -o "$run" --seed 1
  fi
}

through_the_crf() { # NAME LAYERS STEPS: stages crf, joint and full, from the run of stage unary
  local name=$1 run=$1-$2 steps=$3
  local -n all=$name grid=${name}_grid
  stage "$run-crf" crf "${grid[@]}" --init "$runs/$run-unary/best.h5"
  stage "$run-joint" joint "${all[@]}" --init "$runs/$run-crf/best.h5" \
    --crop 160x384 --batch 2 --steps "$steps" --validate-every $((steps / 2))
  stage "$run-full" full "${all[@]}" --init "$runs/$run-joint/best.h5" \
    --crop 160x384 --batch 2 --steps "$steps" --validate-every $((steps / 2))
}

specialist() { # NAME LAYERS UNARY_STEPS RATE STEPS: from the general network
  local -n all=$1
  stage "$1-$2-unary" unary "${all[@]}" --init "$runs/general-$2-unary/best.h5" \
    --crop 64x512 --batch 2 --steps "$3" --lr "$4" --validate-every $(($3 / 2))
  through_the_crf "$1" "$2" "$5"
}

stage general-3-unary unary "${general[@]}" --layers 3 \
  --crop 64x512 --batch 2 --steps 2700 --lr 0.08 --validate-every 900
stage general-7-unary unary "${general[@]}" --layers 7 --init "$runs/general-3-unary/best.h5" \
  --crop 64x512 --batch 2 --steps 1300 --lr 0.03 --validate-every 650
through_the_crf general 7 60
specialist kitti 7 150 0.015 50
specialist middlebury 7 400 0.02 180
through_the_crf general 3 80
specialist kitti 3 300 0.02 80
specialist middlebury 3 300 0.02 80
