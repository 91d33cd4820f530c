#!/bin/sh
# intervals.sh FIT_PROFILES: intervals of steps made by hand. Twelve residuals of +0.01 and -0.01 after four
# constants that priors hold: three constants, nine degrees of freedom, t(0.95, 9) = 1.833 (Student's table),
# 1.833 sqrt(0.0012/9) sqrt(1 + 3/12) = 0.02366, so 0.977 to 1.024. Of testbeds whose steps are operations and all
# take 1.25 times the prediction the bias is most of log 1.25: no other part has a bias. Rows of other splits and
# rows without a prediction have no part.
cd "$(dirname "$0")/../.." || exit 2
fit=$1
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root/mine" "$work/root/catalogue"
printf 'name,device,issue_us,ratio_p05,ratio_p95,source\nmine,x,0,,,s\n' >"$work/root/mine/profile.csv"
cp cost_profiles/catalogue/intervals.csv "$work/root/catalogue"
head='set,split,measured_s,predicted_s,profile,compute,attention,narrow,experts,communication,host'
{
    echo "$head"
    for i in 1 2 3 4 5 6; do
        echo 'a,calib,1.01005017,1,mine,,,,,,'
        echo 'a,calib,0.99004983,1,mine,,,,,,'
    done
    echo 'a,val,9,1,mine,,,,,,'
    echo 'a,calib,9,,mine,,,,,,'
} >"$work/own.csv"
{
    echo "$head"
    for set in b c d e; do
        for i in 1 2 3; do echo "$set,calib,1.25,1,generic,1,0,0,0.$i,0,0"; done
    done
} >"$work/zero.csv"
say() { echo "intervals.sh: $1"; exit 1; }
"$fit" intervals "$work/root" "$work/own.csv" "$work/zero.csv" --check 2>/dev/null >/dev/null && say 'other intervals pass'
"$fit" intervals "$work/root" "$work/own.csv" "$work/zero.csv" --write >"$work/out" || say 'no fit'
cat "$work/out"
grep -q '^mine .* 12 .* 4  0.977 .. 1.024$' "$work/out" || say 'interval of mine'
grep -q '^mine,x,0,0.977,1.024,s$' "$work/root/mine/profile.csv" || say 'profile.csv'
awk -F, '$1 == "step" || $1 == "compute" { bias += $2 } END { exit !(bias > 0.18 && bias < 0.23) }' \
    "$work/root/catalogue/intervals.csv" || say 'bias'
[ "$(grep -Ec '^(experts|communication|host),0\.000,' "$work/root/catalogue/intervals.csv")" = 3 ] ||
    say 'a bias of no operation'
"$fit" intervals "$work/root" "$work/own.csv" "$work/zero.csv" --check >/dev/null || say 'the same intervals fail'
sed 's/0.1,0,0$/1.1,0,0/' "$work/zero.csv" >"$work/bad.csv"
"$fit" intervals "$work/root" "$work/bad.csv" 2>&1 | grep -q 'bad.csv:2: experts = 1.1: a share is from 0 to 1' || say 'share'
head -4 "$work/zero.csv" >"$work/bad.csv"
"$fit" intervals "$work/root" "$work/bad.csv" 2>&1 | grep -q 'of 1 testbeds: 3 at least' || say 'testbeds'
