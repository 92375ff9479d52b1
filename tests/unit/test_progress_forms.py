# ruff: noqa: E501  (lines as the programs print them)
"""One line of real output for each form that `progress_parser.py` knows, and what it says."""

import pytest

from headway.agent.observe.progress_parser import END, INSIDE, START, Epoch, read_heading, read_line

FORMS = {
    'tqdm of Lightning': (
        'Epoch 2:  60%|██████    | 120/200 [00:02<00:01, 68.29it/s, v_num=0, train_loss=0.310, lr=1e-3]',
        {'label': 'Epoch 2', 'completed': 120, 'total': 200, 'rate': 68.29, 'eta_s': 1.0, 'values': {'train_loss': 0.31, 'lr': 0.001}, 'epoch': Epoch(2, None, INSIDE), 'is_bar': True},
    ),
    'tqdm of torchtune': (
        '1|25|Loss: 0.9123:   0%|          | 25/6250 [00:30<2:05:30,  1.21s/it]',
        {'label': '1|25|Loss: 0.9123', 'completed': 25, 'total': 6250, 'rate': 0.8264462809917356, 'eta_s': 7530.0, 'values': {'loss': 0.9123}, 'is_bar': True},
    ),
    'tqdm': (
        ' 40%|████      | 40/100 [00:04<00:06, 9.87it/s]',
        {'completed': 40, 'total': 100, 'rate': 9.87, 'eta_s': 6.0, 'is_bar': True},
    ),
    'tqdm without a total': (
        'Epoch 0: 57it [00:02, 20.10it/s, loss=0.3]',
        {'label': 'Epoch 0', 'completed': 57, 'rate': 20.1, 'values': {'loss': 0.3}, 'epoch': Epoch(0, None, INSIDE), 'is_bar': True},
    ),
    "Lightning's rich bar": (
        'Epoch 2/4 ━━━━━━━━━━━━━━╸━━━ 160/200 0:00:02 • 0:00:01 68.29it/s v_num: 0.000 train_loss: 0.123',
        {'label': 'Epoch 2', 'completed': 160, 'total': 200, 'rate': 68.29, 'eta_s': 1.0, 'values': {'train_loss': 0.123}, 'epoch': Epoch(2, 5, INSIDE, base=0), 'is_bar': True},
    ),
    "a rich bar of Lightning's sanity check": (
        'Sanity Checking ━━━━━━━━━━━━ 1/2 0:00:00 • 0:00:00 0.00it/s',
        {'label': 'Sanity Checking', 'completed': 1, 'total': 2, 'is_bar': True},
    ),
    'Keras 3': (
        '57/200 ━━━━━━━━━━━━━━━━━━━━ 1s 9ms/step - accuracy: 0.8123 - loss: 0.5012',
        {'completed': 57, 'total': 200, 'rate': 111.1111111111111, 'eta_s': 1.0, 'values': {'accuracy': 0.8123, 'loss': 0.5012}, 'is_bar': True},
    ),
    'Keras 3 at the end of an epoch': (
        '200/200 ━━━━━━━━━━━━━━━━━━━━ 2s 9ms/step - accuracy: 0.9123 - loss: 0.3012 - val_accuracy: 0.93 - val_loss: 0.25',
        {'completed': 200, 'total': 200, 'rate': 111.1111111111111, 'values': {'accuracy': 0.9123, 'loss': 0.3012, 'val_accuracy': 0.93, 'val_loss': 0.25}, 'is_bar': True},
    ),
    'Keras 2': (
        '57/200 [=======>......................] - ETA: 1s - loss: 0.5012 - accuracy: 0.81',
        {'completed': 57, 'total': 200, 'eta_s': 1.0, 'values': {'loss': 0.5012, 'accuracy': 0.81}, 'is_bar': True},
    ),
    'Keras at the start of an epoch': (
        'Epoch 4/4',
        {'epoch': Epoch(4, 4, START)},
    ),
    'HF Trainer 4': (
        "{'loss': 6.2901, 'grad_norm': 1.23, 'learning_rate': 4.9e-05, 'epoch': 0.03}",
        {'values': {'loss': 6.2901, 'grad_norm': 1.23, 'learning_rate': 4.9e-05}},
    ),
    'HF Trainer 5': (
        "{'loss': '6.29', 'grad_norm': '1.23', 'learning_rate': '4.9e-05', 'epoch': '0.03'}",
        {'values': {'loss': 6.29, 'grad_norm': 1.23, 'learning_rate': 4.9e-05}},
    ),
    "HF Trainer's evaluation": (
        "{'eval_loss': 5.9, 'eval_runtime': 1.2, 'eval_samples_per_second': 80.1, 'eval_steps_per_second': 10.1, 'epoch': 1.0}",
        {'values': {'eval_loss': 5.9, 'eval_runtime': 1.2, 'eval_samples_per_second': 80.1, 'eval_steps_per_second': 10.1}},
    ),
    "HF Trainer's summary": (
        "{'train_runtime': 35.2, 'train_samples_per_second': 90.1, 'train_steps_per_second': 11.3, 'train_loss': 6.1, 'epoch': 3.0}",
        {'values': {'train_runtime': 35.2, 'train_samples_per_second': 90.1, 'train_steps_per_second': 11.3, 'train_loss': 6.1}},
    ),
    'nanoGPT': (
        'iter 10: loss 4.1234, time 350.55ms, mfu -100.00%',
        {'label': 'iter', 'completed': 10, 'values': {'loss': 4.1234}},
    ),
    "nanoGPT's evaluation": (
        'step 250: train loss 4.2012, val loss 4.3011',
        {'label': 'step', 'completed': 250, 'values': {'train_loss': 4.2012, 'val_loss': 4.3011}},
    ),
    'llm.c in Python': (
        'step    1/10 | train loss 4.675262 | norm 1.2050 | lr 1.00e-04 | (350.12 ms | 1463 tok/s)',
        {'label': 'step', 'completed': 1, 'total': 10, 'values': {'train_loss': 4.675262, 'norm': 1.205, 'lr': 0.0001}},
    ),
    'llm.c in C': (
        'step    1/18865 | loss 11.009 (+nanz)| norm 15.4 (+nanz)| lr 1.03e-06 | 3200.12 ms | 48.3% bf16 MFU | 164000 tok/s',
        {'label': 'step', 'completed': 1, 'total': 18865, 'values': {'loss': 11.009, 'norm': 15.4, 'lr': 1.03e-06}},
    ),
    "llm.c's validation": (
        'val loss 10.123456',
        {'values': {'val_loss': 10.123456}},
    ),
    'torchtune': (
        'Step 12 | loss:1.2345 lr:0.0003 tokens_per_second_per_gpu:812.5',
        {'label': 'step', 'completed': 12, 'values': {'loss': 1.2345, 'lr': 0.0003}},
    ),
    'Megatron': (
        ' iteration      100/  500000 | consumed samples:         3200 | elapsed time per iteration (ms): 350.2 | learning rate: 1.000E-05 | global batch size:    32 | lm loss: 8.123456E+00 | loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations:   0 |',
        {'label': 'iteration', 'completed': 100, 'total': 500000, 'rate': 2.8555111364934325, 'values': {'learning_rate': 1e-05, 'lm_loss': 8.123456, 'grad_norm': 1.234}, 'step': 100},
    ),
    "Megatron's validation": (
        ' validation loss at iteration 1000 | lm loss value: 3.212345E+00 | lm loss PPL: 2.483745E+01 |',
        {'values': {'validation_lm_loss': 3.212345, 'validation_lm_loss_ppl': 24.83745}, 'step': 1000},
    ),
    'DeepSpeed': (
        '[2023-10-10 12:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[9.6e-06], mom=[(0.9, 0.95)]',
        {'label': 'step', 'completed': 10, 'values': {'lr': 9.6e-06}, 'step': 10},
    ),
    "DeepSpeed's timer": (
        '[2023-10-10 12:00:00,000] [INFO] [timer.py:260:stop] epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=12.34, CurrSamplesPerSec=12.2, MemAllocated=1.2GB, MaxMemAllocated=3.4GB',
        None,
    ),
    'fairseq': (
        '2023-06-01 10:00:00 | INFO | train_inner | epoch 001:    100 / 5005 loss=13.512, nll_loss=13.1, ppl=9000.1, wps=10000, ups=3.5, wpb=2800, bsz=100, num_updates=100, lr=1.25e-05, gnorm=2.1, train_wall=28, gb_free=10, wall=40',
        {'label': 'epoch 1', 'completed': 100, 'total': 5005, 'rate': 3.5, 'values': {'loss': 13.512, 'nll_loss': 13.1, 'ppl': 9000.1, 'lr': 1.25e-05, 'gnorm': 2.1}, 'epoch': Epoch(1, None, INSIDE), 'step': 100},
    ),
    "fairseq's validation": (
        "2023-06-01 10:00:00 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 10.1 | nll_loss 9.8 | ppl 890.2 | wps 20000 | wpb 2000 | bsz 80 | num_updates 5005",
        {'values': {'valid_loss': 10.1, 'valid_nll_loss': 9.8, 'valid_ppl': 890.2}, 'step': 5005},
    ),
    'detectron2': (
        '[05/22 10:00:00 d2.utils.events]:  eta: 0:12:01  iter: 19  total_loss: 2.512  loss_cls: 1.2  loss_box_reg: 0.3  time: 0.3512  last_time: 0.3  data_time: 0.01  lr: 0.00019981  max_mem: 3000M',
        {'label': 'iter', 'completed': 19, 'rate': 2.847380410022779, 'eta_s': 721.0, 'values': {'total_loss': 2.512, 'loss_cls': 1.2, 'loss_box_reg': 0.3, 'lr': 0.00019981}, 'step': 19},
    ),
    'mmcv': (
        '2023-05-10 10:00:00,123 - mmdet - INFO - Epoch [1][50/1000]\tlr: 2.000e-02, eta: 1:02:03, time: 0.350, data_time: 0.010, memory: 3000, loss_cls: 0.5, acc: 92.1, loss: 1.2',
        {'label': 'epoch 1', 'completed': 50, 'total': 1000, 'job_eta_s': 3723.0, 'values': {'lr': 0.02, 'loss_cls': 0.5, 'acc': 92.1, 'loss': 1.2}, 'epoch': Epoch(1, None, INSIDE)},
    ),
    'mmengine': (
        '05/22 10:00:00 - mmengine - INFO - Epoch(train)  [1][  50/1000]  lr: 1.0e-02  eta: 1:02:03  time: 0.35  data_time: 0.01  memory: 3000  loss: 1.2',
        {'label': 'epoch 1', 'completed': 50, 'total': 1000, 'job_eta_s': 3723.0, 'values': {'lr': 0.01, 'loss': 1.2}, 'epoch': Epoch(1, None, INSIDE)},
    ),
    'LightGBM': (
        "[10]\tvalid_0's l2: 0.250123\tvalid_0's auc: 0.81",
        {'label': 'round', 'completed': 10, 'values': {'valid_0-l2': 0.250123, 'valid_0-auc': 0.81}},
    ),
    'XGBoost': (
        '[10]\ttrain-rmse:0.35012\teval-rmse:0.40011',
        {'label': 'round', 'completed': 10, 'values': {'train-rmse': 0.35012, 'eval-rmse': 0.40011}},
    ),
    "scikit-learn's MLP": (
        'Iteration 1, loss = 2.28014209',
        {'label': 'iteration', 'completed': 1, 'values': {'loss': 2.28014209}},
    ),
    "PyTorch's mnist": (
        'Train Epoch: 1 [640/60000 (1%)]\tLoss: 0.345612',
        {'label': 'epoch 1', 'completed': 640, 'total': 60000, 'values': {'loss': 0.345612}, 'epoch': Epoch(1, None, INSIDE)},
    ),
    "PyTorch's mnist test": (
        'Test set: Average loss: 0.0505, Accuracy: 9833/10000 (98%)',
        {'values': {'test_loss': 0.0505, 'test_accuracy': 98.33}},
    ),
    'word_language_model': (
        '| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch 12.35 | loss  7.61 | ppl  2017.90',
        {'label': 'epoch 1', 'completed': 200, 'total': 2983, 'rate': 80.97165991902834, 'values': {'lr': 20.0, 'loss': 7.61, 'ppl': 2017.9}, 'epoch': Epoch(1, None, INSIDE)},
    ),
    'word_language_model at the end of an epoch': (
        '| end of epoch   1 | time: 35.20s | valid loss  6.10 | valid ppl   450.10',
        {'values': {'valid_loss': 6.1, 'valid_ppl': 450.1}, 'epoch': Epoch(1, None, END)},
    ),
    'word_language_model at the end': (
        '| End of training | test loss  5.50 | test ppl   245.01',
        {'values': {'test_loss': 5.5, 'test_ppl': 245.01}},
    ),
    'imagenet': (
        'Epoch: [0][ 10/5005]\tTime  0.351 ( 0.501)\tData  0.001 ( 0.100)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.10 (  0.12)\tAcc@5   0.50 (  0.61)',
        {'label': 'epoch 0', 'completed': 10, 'total': 5005, 'values': {'loss': 6.9, 'acc@1': 0.1, 'acc@5': 0.5}, 'epoch': Epoch(0, None, INSIDE)},
    ),
    "imagenet's test": (
        'Test: [ 10/196]\tTime  0.351 ( 0.501)\tLoss 6.9e+00 (7.0e+00)',
        {'label': 'test', 'completed': 10, 'total': 196},
    ),
    "imagenet's result": (
        ' *   Acc@1 69.758 Acc@5 89.078',
        {'values': {'acc@1': 69.758, 'acc@5': 89.078}},
    ),
    'loss at epoch': (
        'Loss at epoch 3: 0.33',
        {'label': 'epoch', 'values': {'loss': 0.33}, 'epoch': Epoch(3, None, END)},
    ),
    'a step alone': (
        'STEP: 3',
        {'label': 'step', 'completed': 3},
    ),
    'a loss alone': (
        'loss: 0.0231',
        {'values': {'loss': 0.0231}},
    ),
    "PyTorch's regression": (
        'Loss: 0.000123 after 234 batches',
        {'label': 'batches', 'completed': 234, 'values': {'loss': 0.000123}},
    ),
    'tokens per second are not steps': (
        'step 20/300 loss 2.3 1048 tokens/s',
        {'label': 'step', 'completed': 20, 'total': 300, 'values': {'loss': 2.3}},
    ),
    'the unit stands first': (
        'step 100/19560 | grad_norm: 1.2 tokens/s: 12k',
        {'label': 'step', 'completed': 100, 'total': 19560, 'values': {'grad_norm': 1.2}},
    ),
    'the unit stands first, with =': (
        'lr=1e-3 tokens/s=12345 step=7',
        {'label': 'step', 'completed': 7, 'values': {'lr': 0.001}},
    ),
    'mlx': (
        'Iter 10: Train loss 2.612, Learning Rate 1.000e-05, It/sec 3.200, Tokens/sec 450.1, Trained Tokens 4000, Peak mem 5.0 GB',
        {'label': 'iter', 'completed': 10, 'rate': 3.2, 'values': {'train_loss': 2.612, 'learning_rate': 1e-05}},
    ),
    'the yunjey tutorials': (
        'Epoch [3/5], Step [100/600], Loss: 0.1234',
        {'label': 'epoch 3', 'completed': 100, 'total': 600, 'values': {'loss': 0.1234}, 'epoch': Epoch(3, 5, INSIDE)},
    ),
    "an epoch's end": (
        'epoch 3: loss 0.7126 val_acc 0.8237',
        {'values': {'loss': 0.7126, 'val_acc': 0.8237}, 'epoch': Epoch(3, None, END)},
    ),
    "PyTorch's CIFAR tutorial": (
        '[1,  2000] loss: 2.173',
        {'label': 'epoch 1', 'completed': 2000, 'values': {'loss': 2.173}, 'epoch': Epoch(1, None, INSIDE)},
    ),
    "PyTorch's quick start": (
        'loss: 2.302000  [   64/60000]',
        {'label': 'samples', 'completed': 64, 'total': 60000, 'values': {'loss': 2.302}},
    ),
    "PyTorch's quick start, test": (
        'Accuracy: 64.9%, Avg loss: 1.070123',
        {'values': {'accuracy': 64.9, 'avg_loss': 1.070123}},
    ),
    'flax': (
        'epoch: 1, train_loss: 0.3, accuracy: 0.9',
        {'values': {'train_loss': 0.3, 'accuracy': 0.9}, 'epoch': Epoch(1, None, END)},
    ),
    'an epoch from 0': (
        'Epoch 0/24',
        {'epoch': Epoch(0, 24, START)},
    ),
    'a download': (
        'Downloading: 45%|████▌     | 4.50G/10.0G [01:20<01:37, 56.3MB/s]',
        {'label': 'Downloading', 'completed': 4500000000, 'total': 10000000000, 'rate': 56300000.0, 'eta_s': 97.0, 'is_bar': True},
    ),
    'a sentence': (
        'we run for 3 epochs with batch size 32 and learning rate 0.1',
        None,
    ),
    "scikit-learn's histogram boosting": (
        '[1/100] 1 tree, 31 leaves, max depth = 8, train loss: 0.50123, val loss: 0.61, in 0.012s',
        {'label': 'tree', 'completed': 1, 'total': 100, 'values': {'train_loss': 0.50123, 'val_loss': 0.61}, 'step': 1},
    ),
    "a logger's line": (
        'INFO 2024-01-01 step: 100 loss: 0.5 took 3.2 s',
        {'label': 'step', 'completed': 100, 'values': {'loss': 0.5}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_line_of_real_output_is_read(name: str) -> None:
    line, expected = FORMS[name]
    reading = read_line(line)
    if expected is None:
        assert reading is None
        return
    assert reading is not None
    found = reading._asdict() | {"values": dict(reading.values)}
    found = {key: value for key, value in found.items() if value not in (None, {}, False, "")}
    del found["form"]
    assert found == expected


def test_a_table_of_scikit_learn_is_read_by_its_heading() -> None:
    table = read_heading("      Iter       Train Loss   Remaining Time ")
    assert table is not None
    row = table.read("         1           1.2613            0.40s ")
    assert row is not None
    assert (row.completed, row.step, row.values, row.eta_s) == (
        1,
        1,
        (("train_loss", 1.2613),),
        0.4,
    )
    assert table.read("done") is None and read_heading("Iterate over the Loss") is None


@pytest.mark.parametrize(
    "line",
    [
        "a_" * 400 + " loss x",
        "loss " * 200,
        "step 1 " * 140,
        "━" * 900,
        "[" * 900,
        "{'a': " * 150,
        "0%|" * 300,
        "1/2 " * 250,
        "epoch " * 160,
    ],
)
def test_no_line_takes_long_however_it_is_made(line: str) -> None:
    """Patterns that go back and forth would need minutes; the test run's own limit tells."""
    read_line(line)
