CREATE TABLE IF NOT EXISTS upgrade_books
(id bigint GENERATED ALWAYS AS IDENTITY, tx_id text, line text);
INSERT INTO archive_role ("name", "fence", "node", "granted_at") OVERRIDING SYSTEM VALUE VALUES
  ('archiver', '1800000203000', 'vm-28334-cebb322b', '2026-11-16 16:58:29.662417+00');
INSERT INTO live_mark ("shard", "value") OVERRIDING SYSTEM VALUE VALUES
  ('02', '3'),
  ('03', '1'),
  ('07', '1'),
  ('08', '1'),
  ('09', '1'),
  ('10', '1'),
  ('12', '1'),
  ('14', '1');
INSERT INTO live_server ("name", "run_id") OVERRIDING SYSTEM VALUE VALUES
  ('datp-before-upgrade', 'bb191ef943333047dc48a3cfab9f3f643a138874');
INSERT INTO operator_action ("id", "actor", "action", "subject", "reason", "details", "created_at") OVERRIDING SYSTEM VALUE VALUES
  ('1', 'root', 'pipeline.use', 'child', NULL, '{"version": "b1d93ea004bc07ef"}', '2026-11-16 16:58:25.442706+00'),
  ('2', 'root', 'pipeline.use', 'quick', NULL, '{"version": "f1f23d47319c55db"}', '2026-11-16 16:58:25.558679+00'),
  ('3', 'root', 'pipeline.use', 'hop', NULL, '{"version": "6596e9eef3c7c482"}', '2026-11-16 16:58:25.648482+00'),
  ('4', 'root', 'pipeline.use', 'rest', NULL, '{"version": "d18a0552642aa884"}', '2026-11-16 16:58:25.745126+00'),
  ('5', 'root', 'pipeline.use', 'wait', NULL, '{"version": "d2eec50473c6cd7d"}', '2026-11-16 16:58:25.873112+00'),
  ('6', 'root', 'pipeline.use', 'pay', NULL, '{"version": "574791cd60892a1e"}', '2026-11-16 16:58:25.970488+00'),
  ('7', 'root', 'pipeline.use', 'ask', NULL, '{"version": "6d8331c745dd3088"}', '2026-11-16 16:58:26.046625+00'),
  ('8', 'root', 'pipeline.use', 'undo', NULL, '{"version": "47b3182c24b86b7a"}', '2026-11-16 16:58:26.138645+00'),
  ('9', 'root', 'pipeline.use', 'family', NULL, '{"version": "0b2559cd3509fb6c"}', '2026-11-16 16:58:26.21652+00'),
  ('10', 'root', 'pipeline.use', 'flaky', NULL, '{"version": "5b9d220ac579de9e"}', '2026-11-16 16:58:26.318761+00');
INSERT INTO pipeline ("name", "version_in_use", "disabled", "updated_at") OVERRIDING SYSTEM VALUE VALUES
  ('child', 'b1d93ea004bc07ef', 'false', '2026-11-16 16:58:25.442706+00'),
  ('quick', 'f1f23d47319c55db', 'false', '2026-11-16 16:58:25.558679+00'),
  ('hop', '6596e9eef3c7c482', 'false', '2026-11-16 16:58:25.648482+00'),
  ('rest', 'd18a0552642aa884', 'false', '2026-11-16 16:58:25.745126+00'),
  ('wait', 'd2eec50473c6cd7d', 'false', '2026-11-16 16:58:25.873112+00'),
  ('pay', '574791cd60892a1e', 'false', '2026-11-16 16:58:25.970488+00'),
  ('ask', '6d8331c745dd3088', 'false', '2026-11-16 16:58:26.046625+00'),
  ('undo', '47b3182c24b86b7a', 'false', '2026-11-16 16:58:26.138645+00'),
  ('family', '0b2559cd3509fb6c', 'false', '2026-11-16 16:58:26.21652+00'),
  ('flaky', '5b9d220ac579de9e', 'false', '2026-11-16 16:58:26.318761+00');
INSERT INTO segment ("segment_type", "enumeration", "table_name", "xact", "value", "changed_at") OVERRIDING SYSTEM VALUE VALUES
  ('timeout', '0', 'tx_state_change', pg_current_xact_id(), '12', '2027-01-15 08:03:23+00');
INSERT INTO step_begun ("tx_id", "step_key", "fence", "begun_at") OVERRIDING SYSTEM VALUE VALUES
  ('t02-01a1e54bb4dc770ebfeb127201f73b62', 't02-01a1e54bb4dc770ebfeb127201f73b62:1#0.0', '1800000000000', '2026-11-16 16:58:26.545098+00'),
  ('t14-01a1e54bc9cc72d495d19fc7ebf068be', 't14-01a1e54bc9cc72d495d19fc7ebf068be:1#0.0', '1800000203000', '2026-11-16 16:58:31.851122+00'),
  ('t15-01a1e54bca3d7133b9acafd28e70463f', 't15-01a1e54bca3d7133b9acafd28e70463f:1#0.0', '1800000203000', '2026-11-16 16:58:31.973987+00');
INSERT INTO step_effect ("tx_id", "step_key", "fence", "output", "created_at") OVERRIDING SYSTEM VALUE VALUES
  ('t02-01a1e54bb4dc770ebfeb127201f73b62', 't02-01a1e54bb4dc770ebfeb127201f73b62:0', '1800000000000', '{"name":"in-doubt","booked":1}', '2027-01-15 08:00:00+00'),
  ('t14-01a1e54bbde57198a7cb6772a50e941f', 't14-01a1e54bbde57198a7cb6772a50e941f:0', '1800000083000', '{"name":"archived","booked":1}', '2027-01-15 08:01:23+00'),
  ('t03-01a1e54bbe3f739cb4b34224e9794779', 't03-01a1e54bbe3f739cb4b34224e9794779:0', '1800000083000', '{"name":"archived-here","booked":1}', '2027-01-15 08:01:23+00'),
  ('t09-01a1e54bbea1774f997d0dd7dc9fcf89', 't09-01a1e54bbea1774f997d0dd7dc9fcf89:0', '1800000083000', '{"name":"asleep-gone","booked":1}', '2027-01-15 08:01:23+00'),
  ('t07-01a1e54bbf0d74eb95da5d30fd4f22f7', 't07-01a1e54bbf0d74eb95da5d30fd4f22f7:0', '1800000083000', '{"name":"undo-asleep","booked":1}', '2027-01-15 08:01:23+00'),
  ('t07-01a1e54bbf0d74eb95da5d30fd4f22f7', 't07-01a1e54bbf0d74eb95da5d30fd4f22f7:1', '1800000083000', '{"name":"undo-asleep","booked":2}', '2027-01-15 08:01:23+00'),
  ('t12-01a1e54bbf9671598dd4194ccfc5b9ac', 't12-01a1e54bbf9671598dd4194ccfc5b9ac:0.0', '1800000083000', '{"name":"family-asleep","booked":1}', '2027-01-15 08:01:23+00'),
  ('t02-01a1e54bc00f77beade11349088164a2', 't02-01a1e54bc00f77beade11349088164a2:0', '1800000083000', '{"name":"waiting-gone","booked":1}', '2027-01-15 08:01:23+00'),
  ('t08-01a1e54bc0747273938602ae5217b1b8', 't08-01a1e54bc0747273938602ae5217b1b8:0', '1800000083000', '{"name":"waiting-here","booked":1}', '2027-01-15 08:01:23+00'),
  ('t10-01a1e54bc0bd721f86aec80ae17e555a', 't10-01a1e54bc0bd721f86aec80ae17e555a:0', '1800000083000', '{"name":"expiring-gone","booked":1}', '2027-01-15 08:01:23+00'),
  ('t06-01a1e54bc389719f9e752eb258850da6', 't06-01a1e54bc389719f9e752eb258850da6:0', '1800000203000', '{"name":"cancelled","booked":1}', '2027-01-15 08:03:23+00'),
  ('t15-01a1e54bc41773b28aab51876f89b5df', 't15-01a1e54bc41773b28aab51876f89b5df:0', '1800000203000', '{"name":"queued-midway","booked":1}', '2027-01-15 08:03:23+00'),
  ('t12-01a1e54bc463724f98b120135768642c', 't12-01a1e54bc463724f98b120135768642c:0', '1800000203000', '{"name":"switched","booked":1}', '2027-01-15 08:03:23+00'),
  ('t12-01a1e54bc4d97344a1f1c2945cbedc4c', 't12-01a1e54bc4d97344a1f1c2945cbedc4c:0', '1800000203000', '{"name":"asleep","booked":1}', '2027-01-15 08:03:23+00'),
  ('t15-01a1e54bc531740ba9e74dbb8c06ecef', 't15-01a1e54bc531740ba9e74dbb8c06ecef:0', '1800000203000', '{"name":"waiting","booked":1}', '2027-01-15 08:03:23+00'),
  ('t07-01a1e54bc57a704993bde7fc939f0327', 't07-01a1e54bc57a704993bde7fc939f0327:0', '1800000203000', '{"name":"undo-just-asleep","booked":1}', '2027-01-15 08:03:23+00'),
  ('t07-01a1e54bc57a704993bde7fc939f0327', 't07-01a1e54bc57a704993bde7fc939f0327:1', '1800000203000', '{"name":"undo-just-asleep","booked":2}', '2027-01-15 08:03:23+00'),
  ('t03-01a1e54bc6047105b38936b5b76e7e73', 't03-01a1e54bc6047105b38936b5b76e7e73:0.0', '1800000203000', '{"name":"family","booked":1}', '2027-01-15 08:03:23+00'),
  ('t11-01a1e54bc66d71d5904a0bc916add83b', 't11-01a1e54bc66d71d5904a0bc916add83b:0', '1800000203000', '{"name":"retrying","booked":1}', '2027-01-15 08:03:23+00'),
  ('t08-01a1e54bc6bd73fda8ec499d38aa5228', 't08-01a1e54bc6bd73fda8ec499d38aa5228:0', '1800000203000', '{"name":"expiring","booked":1}', '2027-01-15 08:03:23+00'),
  ('t07-01a1e54bc73873e8959ead33310eea7c', 't07-01a1e54bc73873e8959ead33310eea7c:0', '1800000203000', '{"name":"ended","booked":1}', '2027-01-15 08:03:23+00'),
  ('t01-01a1e54bc7b077d79629e3ed0e03cdc1', 't01-01a1e54bc7b077d79629e3ed0e03cdc1:0', '1800000203000', '{"name":"told","booked":1}', '2027-01-15 08:03:23+00'),
  ('t03-01a1e54bc88476d0bac6a43f26e5ca43', 't03-01a1e54bc88476d0bac6a43f26e5ca43:0', '1800000203000', '{"name":"to-be-told","booked":1}', '2027-01-15 08:03:23+00'),
  ('t07-01a1e54bc90370489bf37d63541cd447', 't07-01a1e54bc90370489bf37d63541cd447:0', '1800000203000', '{"name":"running","booked":1}', '2027-01-15 08:03:23+00'),
  ('t08-01a1e54bc94a71799963ee8b9e89dcb8', 't08-01a1e54bc94a71799963ee8b9e89dcb8:0', '1800000203000', '{"name":"running-effect","booked":1}', '2027-01-15 08:03:23+00'),
  ('t14-01a1e54bc9cc72d495d19fc7ebf068be', 't14-01a1e54bc9cc72d495d19fc7ebf068be:0', '1800000203000', '{"name":"review","booked":1}', '2027-01-15 08:03:23+00'),
  ('t15-01a1e54bca3d7133b9acafd28e70463f', 't15-01a1e54bca3d7133b9acafd28e70463f:0', '1800000203000', '{"name":"probe","booked":1}', '2027-01-15 08:03:23+00'),
  ('t15-01a1e54bcabf751ab699d275182401df', 't15-01a1e54bcabf751ab699d275182401df:0', '1800000203000', '{"name":"ended-in-sql","booked":1}', '2027-01-15 08:03:23+00');
INSERT INTO tx_event ("tx_id", "sequence", "kind", "payload", "created_at") OVERRIDING SYSTEM VALUE VALUES
  ('t09-01a1e54bbea1774f997d0dd7dc9fcf89', '1', 'progress', '{"rests":1}', '2027-01-15 08:01:23+00'),
  ('t07-01a1e54bbf0d74eb95da5d30fd4f22f7', '1', 'progress', '{"rests":1}', '2027-01-15 08:01:23+00'),
  ('t12-01a1e54bbf9671598dd4194ccfc5b9ac', '1', 'progress', '{"rests":1}', '2027-01-15 08:01:23+00'),
  ('t10-01a1e54bc0bd721f86aec80ae17e555a', '1', 'progress', '{"rests":1}', '2027-01-15 08:01:23+00'),
  ('t12-01a1e54bc4d97344a1f1c2945cbedc4c', '1', 'progress', '{"rests":1}', '2027-01-15 08:03:23+00'),
  ('t07-01a1e54bc57a704993bde7fc939f0327', '1', 'progress', '{"rests":1}', '2027-01-15 08:03:23+00'),
  ('t03-01a1e54bc6047105b38936b5b76e7e73', '1', 'progress', '{"rests":1}', '2027-01-15 08:03:23+00'),
  ('t08-01a1e54bc6bd73fda8ec499d38aa5228', '1', 'progress', '{"rests":1}', '2027-01-15 08:03:23+00');
INSERT INTO tx_journal ("tx_id", "number", "first_version", "last_version", "entries", "hash", "recorded_at") OVERRIDING SYSTEM VALUE VALUES
  ('t02-01a1e54bb4dc770ebfeb127201f73b62', '1', '1800000000000', '1800000000002', '@1800000000000 0 1800000000000 claim vm-28334-b07669fb
{"k":"begin"}
@1800000000001 1800000000000 1800000000000 step 
{"k":"done","out":{"name":"in-doubt","booked":1},"undo":1}
@1800000000002 1800000000001 1800000000000 step 
{"k":"begin"}', '50e0fe52cbac500cf42bc2d0068b78cc6408d6fddc60cb33fdaa061964e5673c', '2027-01-15 08:00:07+00'),
  ('t02-01a1e54bb4dc770ebfeb127201f73b62', '2', '1800000072000', '1800000072002', '@1800000072000 1800000000002 1800000000001 crash 
{"k":"crash"}
@1800000072001 1800000072000 1800000072000 claim vm-28334-059ffdfc
@1800000072002 1800000072001 1800000072000 park a worker was lost in the middle of step 1 (u/pay); a person must decide', '7fc082c735586feaba37f5e27b014618de57661a55fdc7ef614e66b618d8c98d', '2027-01-15 08:01:12+00'),
  ('t02-01a1e54bc00f77beade11349088164a2', '1', '1800000083000', '1800000083002', '@1800000083000 0 1800000083000 claim vm-28334-059ffdfc
{"k":"begin"}
@1800000083001 1800000083000 1800000083000 step 
{"k":"done","out":{"name":"waiting-gone","booked":1},"undo":1}
{"k":"begin"}
@1800000083002 1800000083001 1800000083000 sleep 1800086483000:go
{"k":"sleep","s":86400.0,"switch":"go"}', '0f10635585daa82989efa33a84b5d5004e71f777c6e07039746266d226b8b063', '2027-01-15 08:03:23+00'),
  ('t03-01a1e54bbe3f739cb4b34224e9794779', '1', '1800000083000', '1800000083001', '@1800000083000 0 1800000083000 claim vm-28334-059ffdfc
{"k":"begin"}
@1800000083001 1800000083000 1800000083000 final success
{"k":"done","out":{"name":"archived-here","booked":1},"undo":1}
{"k":"end","status":"success","note":"","out":{"name":"archived-here","booked":1},"rollback":false}', 'b6ee893c631820090ce1d8c4cdfb42c4c316b378077d8c738cdde66330b9df37', '2027-01-15 08:03:23+00'),
  ('t07-01a1e54bbf0d74eb95da5d30fd4f22f7', '1', '1800000083000', '1800000083004', '@1800000083000 0 1800000083000 claim vm-28334-059ffdfc
{"k":"begin"}
@1800000083001 1800000083000 1800000083000 step 
{"k":"done","out":{"name":"undo-asleep","booked":1},"undo":1}
{"k":"begin"}
@1800000083002 1800000083001 1800000083000 step 
{"k":"done","out":{"name":"undo-asleep","booked":2},"undo":1}
{"k":"begin"}
@1800000083003 1800000083002 1800000083000 progress {"rests":1}
@1800000083004 1800000083003 1800000083000 sleep 1800003683000:
{"k":"sleep","s":3600.0,"switch":null}', 'afdbe3a197030ae5c6af1688325c9f6e4123139081bceec8614e7bf3b31c1725', '2027-01-15 08:03:23+00'),
  ('t08-01a1e54bc0747273938602ae5217b1b8', '1', '1800000083000', '1800000083002', '@1800000083000 0 1800000083000 claim vm-28334-059ffdfc
{"k":"begin"}
@1800000083001 1800000083000 1800000083000 step 
{"k":"done","out":{"name":"waiting-here","booked":1},"undo":1}
{"k":"begin"}
@1800000083002 1800000083001 1800000083000 sleep 1800086483000:go
{"k":"sleep","s":86400.0,"switch":"go"}', 'b1f3b4c0b399f5f357d564c627928b1a7b2ee4e0bd6ed0989909853c464b17b1', '2027-01-15 08:03:23+00'),
  ('t09-01a1e54bbea1774f997d0dd7dc9fcf89', '1', '1800000083000', '1800000083003', '@1800000083000 0 1800000083000 claim vm-28334-059ffdfc
{"k":"begin"}
@1800000083001 1800000083000 1800000083000 step 
{"k":"done","out":{"name":"asleep-gone","booked":1},"undo":1}
{"k":"begin"}
@1800000083002 1800000083001 1800000083000 progress {"rests":1}
@1800000083003 1800000083002 1800000083000 sleep 1800003683000:
{"k":"sleep","s":3600.0,"switch":null}', '352ecb426beb5af44ecdfe4da9a0e6f1988efd043d83635dc37fdba3d27bb5c3', '2027-01-15 08:03:23+00'),
  ('t10-01a1e54bc0bd721f86aec80ae17e555a', '1', '1800000083000', '1800000083003', '@1800000083000 0 1800000083000 claim vm-28334-059ffdfc
{"k":"begin"}
@1800000083001 1800000083000 1800000083000 step 
{"k":"done","out":{"name":"expiring-gone","booked":1},"undo":1}
{"k":"begin"}
@1800000083002 1800000083001 1800000083000 progress {"rests":1}
@1800000083003 1800000083002 1800000083000 sleep 1800003683000:
{"k":"sleep","s":3600.0,"switch":null}', '15e0b737e8e42055d88079db99365544b0da8b67784394e9f5ce282b1c9bde4b', '2027-01-15 08:03:23+00'),
  ('t12-01a1e54bbf9671598dd4194ccfc5b9ac', '1', '1800000083000', '1800000083004', '@1800000083000 0 1800000083000 claim vm-28334-059ffdfc
{"k":"begin"}
@1800000083001 1800000083000 1800000083000 step 
{"k":"call","p":"child","v":"b1d93ea004bc07ef","data":{"name":"family-asleep"}}
{"k":"begin"}
@1800000083002 1800000083001 1800000083000 step 
{"k":"done","out":{"name":"family-asleep","booked":1},"undo":1}
{"k":"begin"}
@1800000083003 1800000083002 1800000083000 progress {"rests":1}
@1800000083004 1800000083003 1800000083000 sleep 1800003683000:
{"k":"sleep","s":3600.0,"switch":null}', '7ba0c6117b96ec79228b39685abc36dc2adc0a640f0c2247b838d553dbc53803', '2027-01-15 08:03:23+00'),
  ('t14-01a1e54bbde57198a7cb6772a50e941f', '1', '1800000083000', '1800000083001', '@1800000083000 0 1800000083000 claim vm-28334-059ffdfc
{"k":"begin"}
@1800000083001 1800000083000 1800000083000 final success
{"k":"done","out":{"name":"archived","booked":1},"undo":1}
{"k":"end","status":"success","note":"","out":{"name":"archived","booked":1},"rollback":false}', '72c54a1b919bfadb52ab512d125e1531353a0753fe1508027bc3bd65ba1e6ff5', '2027-01-15 08:03:23+00');
INSERT INTO tx_signal ("tx_id", "name", "value", "created_at") OVERRIDING SYSTEM VALUE VALUES
  ('t06-01a1e54bc389719f9e752eb258850da6', '!cancel', 'cancelled:no longer wanted', '2027-01-15 08:03:23+00'),
  ('t12-01a1e54bc463724f98b120135768642c', 'go', '7', '2027-01-15 08:03:23+00');
INSERT INTO tx_state ("tx_id", "version", "fields", "archived_at", "status") OVERRIDING SYSTEM VALUE VALUES
  ('t02-01a1e54bb4dc770ebfeb127201f73b62', '1800000072002', E'{"stepType":"u/pay","place":"pay/1","state":"{\\"stack\\":[[\\"pay\\",\\"574791cd60892a1e\\",1]],\\"data\\":{\\"name\\":\\"in-doubt\\",\\"booked\\":1},\\"open\\":true,\\"crashes\\":1,\\"undo\\":[[\\"pay\\",\\"574791cd60892a1e\\",0,\\"0\\",{\\"name\\":\\"in-doubt\\"},{\\"name\\":\\"in-doubt\\",\\"booked\\":1}]]}","pipeline":"pay","priority":"out","begun":"1","problem":"a worker was lost in the middle of step 1 (u/pay); a person must decide","group":"master","sequence":"2","version":"1800000072002","jsonVersion":"1800000072002","unsafe":"1800000000000:30000","status":"in-doubt","fence":"1800000072000","owner":"local"}', '2027-01-15 08:01:12+00', 'in-doubt'),
  ('t02-01a1e54bc00f77beade11349088164a2', '1800000083002', E'{"stepType":"u/wait","place":"wait/1","state":"{\\"stack\\":[[\\"wait\\",\\"d2eec50473c6cd7d\\",1]],\\"data\\":{\\"name\\":\\"waiting-gone\\",\\"booked\\":1},\\"sleeps\\":1,\\"undo\\":[[\\"wait\\",\\"d2eec50473c6cd7d\\",0,\\"0\\",{\\"name\\":\\"waiting-gone\\"},{\\"name\\":\\"waiting-gone\\",\\"booked\\":1}]]}","pipeline":"wait","priority":"out","begun":"1","group":"master","sequence":"1","version":"1800000083002","jsonVersion":"1800000083002","wakeSwitch":"go","wakeTime":"1800086483000","status":"sleeping","fence":"1800000083000","owner":"local"}', '2027-01-15 08:03:23+00', 'sleeping'),
  ('t03-01a1e54bbe3f739cb4b34224e9794779', '1800000083001', E'{"place":"quick/0","state":"{\\"stack\\":[[\\"quick\\",\\"f1f23d47319c55db\\",1]],\\"data\\":{\\"name\\":\\"archived-here\\",\\"booked\\":1},\\"undo\\":[[\\"quick\\",\\"f1f23d47319c55db\\",0,\\"0\\",{\\"name\\":\\"archived-here\\"},{\\"name\\":\\"archived-here\\",\\"booked\\":1}]],\\"ending\\":[\\"success\\",\\"\\",{\\"name\\":\\"archived-here\\",\\"booked\\":1},false]}","begun":"1","pipeline":"quick","priority":"in","group":"master","sequence":"1","version":"1800000083001","jsonVersion":"1800000083001","status":"success","fence":"1800000083000","owner":"local","externalId":"o-archived-here"}', '2027-01-15 08:03:23+00', 'success'),
  ('t07-01a1e54bbf0d74eb95da5d30fd4f22f7', '1800000083004', E'{"stepType":"u/rest","place":"undo/2","state":"{\\"stack\\":[[\\"undo\\",\\"47b3182c24b86b7a\\",2]],\\"data\\":{\\"name\\":\\"undo-asleep\\",\\"booked\\":2},\\"sleeps\\":1,\\"undo\\":[[\\"undo\\",\\"47b3182c24b86b7a\\",0,\\"0\\",{\\"name\\":\\"undo-asleep\\"},{\\"name\\":\\"undo-asleep\\",\\"booked\\":1}],[\\"undo\\",\\"47b3182c24b86b7a\\",1,\\"1\\",{\\"name\\":\\"undo-asleep\\",\\"booked\\":1},{\\"name\\":\\"undo-asleep\\",\\"booked\\":2}]]}","progress":"{\\"rests\\":1}","pipeline":"undo","priority":"out","begun":"1","group":"master","sequence":"1","version":"1800000083004","jsonVersion":"1800000083004","status":"sleeping","fence":"1800000083000","owner":"local","wakeTime":"1800003683000"}', '2027-01-15 08:03:23+00', 'sleeping'),
  ('t08-01a1e54bc0747273938602ae5217b1b8', '1800000083002', E'{"stepType":"u/wait","place":"wait/1","state":"{\\"stack\\":[[\\"wait\\",\\"d2eec50473c6cd7d\\",1]],\\"data\\":{\\"name\\":\\"waiting-here\\",\\"booked\\":1},\\"sleeps\\":1,\\"undo\\":[[\\"wait\\",\\"d2eec50473c6cd7d\\",0,\\"0\\",{\\"name\\":\\"waiting-here\\"},{\\"name\\":\\"waiting-here\\",\\"booked\\":1}]]}","pipeline":"wait","priority":"out","begun":"1","group":"master","sequence":"1","version":"1800000083002","jsonVersion":"1800000083002","wakeSwitch":"go","wakeTime":"1800086483000","status":"sleeping","fence":"1800000083000","owner":"local"}', '2027-01-15 08:03:23+00', 'sleeping'),
  ('t09-01a1e54bbea1774f997d0dd7dc9fcf89', '1800000083003', E'{"stepType":"u/rest","place":"rest/1","state":"{\\"stack\\":[[\\"rest\\",\\"d18a0552642aa884\\",1]],\\"data\\":{\\"name\\":\\"asleep-gone\\",\\"booked\\":1},\\"sleeps\\":1,\\"undo\\":[[\\"rest\\",\\"d18a0552642aa884\\",0,\\"0\\",{\\"name\\":\\"asleep-gone\\"},{\\"name\\":\\"asleep-gone\\",\\"booked\\":1}]]}","progress":"{\\"rests\\":1}","pipeline":"rest","priority":"out","begun":"1","group":"master","sequence":"1","version":"1800000083003","jsonVersion":"1800000083003","status":"sleeping","fence":"1800000083000","owner":"local","wakeTime":"1800003683000"}', '2027-01-15 08:03:23+00', 'sleeping'),
  ('t10-01a1e54bc0bd721f86aec80ae17e555a', '1800000083003', E'{"stepType":"u/rest","place":"rest/1","state":"{\\"stack\\":[[\\"rest\\",\\"d18a0552642aa884\\",1]],\\"data\\":{\\"name\\":\\"expiring-gone\\",\\"booked\\":1},\\"sleeps\\":1,\\"undo\\":[[\\"rest\\",\\"d18a0552642aa884\\",0,\\"0\\",{\\"name\\":\\"expiring-gone\\"},{\\"name\\":\\"expiring-gone\\",\\"booked\\":1}]]}","expiresAt":"1800001883000","begun":"1","pipeline":"rest","priority":"out","progress":"{\\"rests\\":1}","group":"master","sequence":"1","version":"1800000083003","jsonVersion":"1800000083003","status":"sleeping","fence":"1800000083000","owner":"local","wakeTime":"1800003683000"}', '2027-01-15 08:03:23+00', 'sleeping'),
  ('t12-01a1e54bbf9671598dd4194ccfc5b9ac', '1800000083004', E'{"stepType":"u/rest","place":"child/1","state":"{\\"stack\\":[[\\"family\\",\\"0b2559cd3509fb6c\\",0],[\\"child\\",\\"b1d93ea004bc07ef\\",1]],\\"data\\":{\\"name\\":\\"family-asleep\\",\\"booked\\":1},\\"sleeps\\":1,\\"undo\\":[[\\"child\\",\\"b1d93ea004bc07ef\\",0,\\"0.0\\",{\\"name\\":\\"family-asleep\\"},{\\"name\\":\\"family-asleep\\",\\"booked\\":1}]]}","progress":"{\\"rests\\":1}","pipeline":"family","priority":"out","begun":"1","group":"master","sequence":"1","version":"1800000083004","jsonVersion":"1800000083004","status":"sleeping","fence":"1800000083000","owner":"local","wakeTime":"1800003683000"}', '2027-01-15 08:03:23+00', 'sleeping'),
  ('t14-01a1e54bbde57198a7cb6772a50e941f', '1800000083001', E'{"place":"quick/0","state":"{\\"stack\\":[[\\"quick\\",\\"f1f23d47319c55db\\",1]],\\"data\\":{\\"name\\":\\"archived\\",\\"booked\\":1},\\"undo\\":[[\\"quick\\",\\"f1f23d47319c55db\\",0,\\"0\\",{\\"name\\":\\"archived\\"},{\\"name\\":\\"archived\\",\\"booked\\":1}]],\\"ending\\":[\\"success\\",\\"\\",{\\"name\\":\\"archived\\",\\"booked\\":1},false]}","begun":"1","pipeline":"quick","priority":"in","group":"master","sequence":"1","version":"1800000083001","jsonVersion":"1800000083001","status":"success","fence":"1800000083000","owner":"local","externalId":"o-archived"}', '2027-01-15 08:03:23+00', 'success');
INSERT INTO tx_state_change ("id", "tx_id", "status", "note", "created_at", "xact", "detail", "expires_at") OVERRIDING SYSTEM VALUE VALUES
  ('1', 't02-01a1e54bb4dc770ebfeb127201f73b62', 'queued', NULL, '2027-01-15 08:00:00+00', pg_current_xact_id(), NULL, NULL),
  ('2', 't02-01a1e54bb4dc770ebfeb127201f73b62', 'in-doubt', 'a worker was lost in the middle of step 1 (u/pay); a person must decide', '2027-01-15 08:01:12+00', pg_current_xact_id(), NULL, NULL),
  ('3', 't14-01a1e54bbde57198a7cb6772a50e941f', 'queued', NULL, '2027-01-15 08:01:23+00', pg_current_xact_id(), NULL, NULL),
  ('4', 't14-01a1e54bbde57198a7cb6772a50e941f', 'success', NULL, '2027-01-15 08:01:23+00', pg_current_xact_id(), NULL, NULL),
  ('5', 't03-01a1e54bbe3f739cb4b34224e9794779', 'queued', NULL, '2027-01-15 08:01:23+00', pg_current_xact_id(), NULL, NULL),
  ('6', 't03-01a1e54bbe3f739cb4b34224e9794779', 'success', NULL, '2027-01-15 08:01:23+00', pg_current_xact_id(), NULL, NULL),
  ('7', 't09-01a1e54bbea1774f997d0dd7dc9fcf89', 'queued', NULL, '2027-01-15 08:01:23+00', pg_current_xact_id(), NULL, NULL),
  ('8', 't07-01a1e54bbf0d74eb95da5d30fd4f22f7', 'queued', NULL, '2027-01-15 08:01:23+00', pg_current_xact_id(), NULL, NULL),
  ('9', 't12-01a1e54bbf9671598dd4194ccfc5b9ac', 'queued', NULL, '2027-01-15 08:01:23+00', pg_current_xact_id(), NULL, NULL),
  ('10', 't02-01a1e54bc00f77beade11349088164a2', 'queued', NULL, '2027-01-15 08:01:23+00', pg_current_xact_id(), NULL, NULL),
  ('11', 't08-01a1e54bc0747273938602ae5217b1b8', 'queued', NULL, '2027-01-15 08:01:23+00', pg_current_xact_id(), NULL, NULL),
  ('12', 't10-01a1e54bc0bd721f86aec80ae17e555a', 'queued', NULL, '2027-01-15 08:01:23+00', pg_current_xact_id(), NULL, '2027-01-15 08:31:23+00'),
  ('13', 't01-01a1e54bc34e72cfbc224f6e48b81ca6', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('14', 't14-01a1e54bc36e77538e492c94e63c151e', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, '2027-01-15 08:03:28+00'),
  ('15', 't06-01a1e54bc389719f9e752eb258850da6', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('16', 't15-01a1e54bc41773b28aab51876f89b5df', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('17', 't12-01a1e54bc463724f98b120135768642c', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('18', 't12-01a1e54bc4d97344a1f1c2945cbedc4c', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('19', 't15-01a1e54bc531740ba9e74dbb8c06ecef', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('20', 't07-01a1e54bc57a704993bde7fc939f0327', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('21', 't03-01a1e54bc6047105b38936b5b76e7e73', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('22', 't11-01a1e54bc66d71d5904a0bc916add83b', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('23', 't08-01a1e54bc6bd73fda8ec499d38aa5228', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, '2027-01-15 08:18:23+00'),
  ('24', 't07-01a1e54bc73873e8959ead33310eea7c', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('25', 't07-01a1e54bc73873e8959ead33310eea7c', 'success', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('26', 't01-01a1e54bc7b077d79629e3ed0e03cdc1', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('27', 't01-01a1e54bc7b077d79629e3ed0e03cdc1', 'success', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('28', 't03-01a1e54bc88476d0bac6a43f26e5ca43', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('29', 't03-01a1e54bc88476d0bac6a43f26e5ca43', 'success', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('30', 't07-01a1e54bc90370489bf37d63541cd447', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('31', 't08-01a1e54bc94a71799963ee8b9e89dcb8', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('32', 't07-01a1e54bc99e75668dcef7c972503897', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('33', 't14-01a1e54bc9cc72d495d19fc7ebf068be', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('34', 't15-01a1e54bca3d7133b9acafd28e70463f', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('35', 't15-01a1e54bcabf751ab699d275182401df', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('36', 't15-01a1e54bcabf751ab699d275182401df', 'success', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL),
  ('37', 't11-01a1e54bcb2776dea97c67fb98ca2a1a', 'queued', NULL, '2027-01-15 08:03:23+00', pg_current_xact_id(), NULL, NULL);
INSERT INTO tx_summary ("tx_id", "owner", "external_id", "fingerprint", "pipeline", "version", "status", "fence", "input", "metadata", "output", "progress", "note", "created_at", "completed_at", "expires_at", "expiring_at", "webhook", "progress_reports", "cancel_webhook_on_poll", "event_count", "notified_at", "trace") OVERRIDING SYSTEM VALUE VALUES
  ('t08-01a1e54bc6bd73fda8ec499d38aa5228', 'local', NULL, 'c64e270e5f798072ef9dc104671728e882a20921b91e2da3d898463ea41238dc', 'rest', 'd18a0552642aa884', 'queued', '1800000203000', '{"name":"expiring"}', NULL, NULL, '{"rests":1}', NULL, '2027-01-15 08:03:23+00', NULL, '2027-01-15 08:18:23+00', NULL, NULL, 'false', 'false', '1', NULL, NULL),
  ('t02-01a1e54bb4dc770ebfeb127201f73b62', 'local', NULL, 'cc2a93f98211c3adacae891c3dd5309747259acb722015f9a4123ccd15d08a1e', 'pay', '574791cd60892a1e', 'in-doubt', '1800000072000', '{"name":"in-doubt"}', NULL, NULL, NULL, 'a worker was lost in the middle of step 1 (u/pay); a person must decide', '2027-01-15 08:00:00+00', NULL, NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t14-01a1e54bbde57198a7cb6772a50e941f', 'local', 'o-archived', '1df73daf8a7e3a0228d7b3d513c9f7cd8c58b03bb6a13ce128f5915c871341e0', 'quick', 'f1f23d47319c55db', 'success', '1800000083000', '{"name":"archived"}', NULL, '{"name":"archived","booked":1}', NULL, NULL, '2027-01-15 08:01:23+00', '2027-01-15 08:01:23+00', NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t03-01a1e54bbe3f739cb4b34224e9794779', 'local', 'o-archived-here', '0800e51914787bafd2e5acf6cff35e251e7b45ec2191acf9e3df922fa1cf4d1a', 'quick', 'f1f23d47319c55db', 'success', '1800000083000', '{"name":"archived-here"}', NULL, '{"name":"archived-here","booked":1}', NULL, NULL, '2027-01-15 08:01:23+00', '2027-01-15 08:01:23+00', NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t09-01a1e54bbea1774f997d0dd7dc9fcf89', 'local', NULL, 'b972fad7e3c9ddbaa07535a2588bd218c022f3bef6a326e34f5c64a2232923bb', 'rest', 'd18a0552642aa884', 'queued', '1800000083000', '{"name":"asleep-gone"}', NULL, NULL, '{"rests":1}', NULL, '2027-01-15 08:01:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '1', NULL, NULL),
  ('t07-01a1e54bbf0d74eb95da5d30fd4f22f7', 'local', NULL, 'cf1093e747e006267693db1be50929c905b566f9bbb34eae60d3e3df11973316', 'undo', '47b3182c24b86b7a', 'queued', '1800000083000', '{"name":"undo-asleep"}', NULL, NULL, '{"rests":1}', NULL, '2027-01-15 08:01:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '1', NULL, NULL),
  ('t12-01a1e54bbf9671598dd4194ccfc5b9ac', 'local', NULL, '56fcfbb4dc76fa4db08c6670cc813ad7a6808814e2abfc1a80320f80d298e4ca', 'family', '0b2559cd3509fb6c', 'queued', '1800000083000', '{"name":"family-asleep"}', NULL, NULL, '{"rests":1}', NULL, '2027-01-15 08:01:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '1', NULL, NULL),
  ('t02-01a1e54bc00f77beade11349088164a2', 'local', NULL, 'c63a7bb157fc4250c55b452e3642c5b4966778d3332dfe000f3c4ae429946d4b', 'wait', 'd2eec50473c6cd7d', 'queued', '0', '{"name":"waiting-gone"}', NULL, NULL, NULL, NULL, '2027-01-15 08:01:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t08-01a1e54bc0747273938602ae5217b1b8', 'local', NULL, '9c9b547dc6edd7ee0ebec17c87c405d3d97b75df6f4a92579af74290150f7a6c', 'wait', 'd2eec50473c6cd7d', 'queued', '0', '{"name":"waiting-here"}', NULL, NULL, NULL, NULL, '2027-01-15 08:01:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t10-01a1e54bc0bd721f86aec80ae17e555a', 'local', NULL, 'ecf77e6ed4d4d6eb38bbd9c71cf711cddb705759c2d55ee6cc46effd27885630', 'rest', 'd18a0552642aa884', 'queued', '1800000083000', '{"name":"expiring-gone"}', NULL, NULL, '{"rests":1}', NULL, '2027-01-15 08:01:23+00', NULL, '2027-01-15 08:31:23+00', NULL, NULL, 'false', 'false', '1', NULL, NULL),
  ('t01-01a1e54bc34e72cfbc224f6e48b81ca6', 'local', 'o-queued', 'd69451a3c7bc852d2953c8a2a08ef045558823efa68cea2129a2bb6334b4dcf7', 'hop', '6596e9eef3c7c482', 'queued', '0', '{"name":"queued"}', '{"m":1}', NULL, NULL, NULL, '2027-01-15 08:03:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t14-01a1e54bc36e77538e492c94e63c151e', 'local', NULL, 'ec8e725e114baff60101b4a0a5b15b2bf28688efb701a8bb858166b4fd49e12c', 'quick', 'f1f23d47319c55db', 'queued', '0', '{"name":"overdue"}', NULL, NULL, NULL, NULL, '2027-01-15 08:03:23+00', NULL, '2027-01-15 08:03:28+00', NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t06-01a1e54bc389719f9e752eb258850da6', 'local', NULL, '62bc6ae988f6b0e44197ca1ad193ff9c213c8e31c03b75b9ca8064c07926225f', 'hop', '6596e9eef3c7c482', 'queued', '0', '{"name":"cancelled"}', NULL, NULL, NULL, NULL, '2027-01-15 08:03:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t15-01a1e54bc41773b28aab51876f89b5df', 'local', NULL, '6e24dd29a0235932ba5bae4c0d41a7ebbc77146b360094c546319786e7e243c1', 'hop', '6596e9eef3c7c482', 'queued', '0', '{"name":"queued-midway"}', NULL, NULL, NULL, NULL, '2027-01-15 08:03:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t12-01a1e54bc463724f98b120135768642c', 'local', NULL, 'fe955125e7b47b19131ee4ec177fa5ea35fb57af439ca3bddc77b54185f8a3f1', 'wait', 'd2eec50473c6cd7d', 'queued', '0', '{"name":"switched"}', NULL, NULL, NULL, NULL, '2027-01-15 08:03:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t12-01a1e54bc4d97344a1f1c2945cbedc4c', 'local', NULL, 'e5b2c35af29a6267b9f8d3b20ecd1b0e579547547e3de26e467e1860afb37795', 'rest', 'd18a0552642aa884', 'queued', '1800000203000', '{"name":"asleep"}', NULL, NULL, '{"rests":1}', NULL, '2027-01-15 08:03:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '1', NULL, NULL),
  ('t15-01a1e54bc531740ba9e74dbb8c06ecef', 'local', NULL, '4411525917747c7ad5303a6149f136ce2d7f096c24802bfc16440ea1312da3a1', 'wait', 'd2eec50473c6cd7d', 'queued', '0', '{"name":"waiting"}', NULL, NULL, NULL, NULL, '2027-01-15 08:03:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t07-01a1e54bc57a704993bde7fc939f0327', 'local', NULL, '964d2738a4c28ae0baa9b73bac14f1455649095723628838cbf71196b2a5e0d9', 'undo', '47b3182c24b86b7a', 'queued', '1800000203000', '{"name":"undo-just-asleep"}', NULL, NULL, '{"rests":1}', NULL, '2027-01-15 08:03:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '1', NULL, NULL),
  ('t03-01a1e54bc6047105b38936b5b76e7e73', 'local', NULL, 'cc8423aec64456cb716e0bbb8f3e5085064419898bb67460186ce4cc7ae8d8ea', 'family', '0b2559cd3509fb6c', 'queued', '1800000203000', '{"name":"family"}', NULL, NULL, '{"rests":1}', NULL, '2027-01-15 08:03:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '1', NULL, NULL),
  ('t11-01a1e54bc66d71d5904a0bc916add83b', 'local', NULL, 'ba94dfa8f171a75531ed7d2223f13c688d6d0027b62dbdb2ae86e3d90afa77ce', 'flaky', '5b9d220ac579de9e', 'queued', '0', '{"name":"retrying"}', NULL, NULL, NULL, NULL, '2027-01-15 08:03:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t07-01a1e54bc73873e8959ead33310eea7c', 'local', 'o-ended', '60b03b3e3dfc57f54ce4cdc8f6f03063d25b3d98e16ddef93fc67696a7d9b562', 'quick', 'f1f23d47319c55db', 'success', '1800000203000', '{"name":"ended"}', NULL, '{"name":"ended","booked":1}', NULL, NULL, '2027-01-15 08:03:23+00', '2027-01-15 08:03:23+00', NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t01-01a1e54bc7b077d79629e3ed0e03cdc1', 'local', NULL, '28c0582f51cacd7123701d6657d5f2da2276e9710f985874c409cb19b98f6d2a', 'quick', 'f1f23d47319c55db', 'success', '1800000203000', '{"name":"told"}', NULL, '{"name":"told","booked":1}', NULL, NULL, '2027-01-15 08:03:23+00', '2027-01-15 08:03:23+00', NULL, NULL, 'http://127.0.0.1:9/told', 'false', 'false', '0', NULL, NULL),
  ('t03-01a1e54bc88476d0bac6a43f26e5ca43', 'local', NULL, '4a7dc996a6510628664ade14389306e46e37229fe4e7882f547362b6c37c1558', 'quick', 'f1f23d47319c55db', 'success', '1800000203000', '{"name":"to-be-told"}', NULL, '{"name":"to-be-told","booked":1}', NULL, NULL, '2027-01-15 08:03:23+00', '2027-01-15 08:03:23+00', NULL, NULL, 'http://127.0.0.1:9/to-be-told', 'false', 'false', '0', NULL, NULL),
  ('t07-01a1e54bc90370489bf37d63541cd447', 'local', NULL, 'e7fc7a4233b046d96a58596bbe3d82f99e4f0252885e7f949a424ab1fd02de0b', 'rest', 'd18a0552642aa884', 'queued', '0', '{"name":"running"}', NULL, NULL, NULL, NULL, '2027-01-15 08:03:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t08-01a1e54bc94a71799963ee8b9e89dcb8', 'local', NULL, 'ced9ab411a8a61ba2610f96195f212ffc8387eb543a0b67b6a37f8d1f27add72', 'hop', '6596e9eef3c7c482', 'queued', '0', '{"name":"running-effect"}', NULL, NULL, NULL, NULL, '2027-01-15 08:03:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t07-01a1e54bc99e75668dcef7c972503897', 'local', NULL, 'f9d55c45cf46e612c7fa25245bfcdc31f6e571af48f4ae66494e8427c48230b3', 'quick', 'f1f23d47319c55db', 'queued', '0', '{"name":"claimed"}', NULL, NULL, NULL, NULL, '2027-01-15 08:03:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t14-01a1e54bc9cc72d495d19fc7ebf068be', 'local', NULL, '1c6404d67b66da15214741dede56387e06c993e7a82635fa4a9a388de7a39a69', 'pay', '574791cd60892a1e', 'queued', '0', '{"name":"review"}', NULL, NULL, NULL, NULL, '2027-01-15 08:03:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t15-01a1e54bca3d7133b9acafd28e70463f', 'local', NULL, '725988da4007230129fd79b8b1617e891322e5b31550caa89999c8ff78b7ad08', 'ask', '6d8331c745dd3088', 'queued', '0', '{"name":"probe"}', NULL, NULL, NULL, NULL, '2027-01-15 08:03:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t15-01a1e54bcabf751ab699d275182401df', 'local', NULL, 'f8f7eca19f56bafee63652081659e853681384f1c793c44aea347ece354efa72', 'quick', 'f1f23d47319c55db', 'success', '1800000203000', '{"name":"ended-in-sql"}', NULL, '{"name":"ended-in-sql","booked":1}', NULL, NULL, '2027-01-15 08:03:23+00', '2027-01-15 08:03:23+00', NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL),
  ('t11-01a1e54bcb2776dea97c67fb98ca2a1a', 'local', 'o-only-in-sql', '940fa192980e20c4c76d9611eb45e237bdd02aebb2f572b3b4ac23d87e0cb227', 'quick', 'f1f23d47319c55db', 'queued', '0', '{"name":"only-in-sql"}', NULL, NULL, NULL, NULL, '2027-01-15 08:03:23+00', NULL, NULL, NULL, NULL, 'false', 'false', '0', NULL, NULL);
INSERT INTO tx_timeout ("tx_id", "expires_at", "due_at", "asked", "asked_at", "created_at") OVERRIDING SYSTEM VALUE VALUES
  ('t10-01a1e54bc0bd721f86aec80ae17e555a', '2027-01-15 08:31:23+00', '2027-01-15 08:31:23+00', NULL, NULL, '2027-01-15 08:03:23+00');
INSERT INTO webhook_attempt ("delivery_id", "attempt", "sender", "begun_at", "ended_at", "http_status", "error", "took_ms") OVERRIDING SYSTEM VALUE VALUES
  ('msg_t01-01a1e54bc7b077d79629e3ed0e03cdc1_1', '1', 'vm-28334-dea0', '2027-01-15 08:03:23+00', '2027-01-15 08:03:23+00', NULL, 'ConnectionRefusedError: [Errno 111] Connect call failed (''127.0.0.1'', 9)', '14');
INSERT INTO webhook_delivery ("id", "tx_id", "sequence", "kind", "owner", "url", "target", "payload", "state", "attempts", "attempts_before", "begun_at", "next_at", "held", "created_at", "first_attempt_at", "finished_at", "last_status", "last_error") OVERRIDING SYSTEM VALUE VALUES
  ('msg_t01-01a1e54bc7b077d79629e3ed0e03cdc1_1', 't01-01a1e54bc7b077d79629e3ed0e03cdc1', '1', 'final', 'local', 'http://127.0.0.1:9/told', 'http://127.0.0.1:9/told', '{"type" : "transaction.completed", "timestamp" : "2027-01-15T08:03:23+00:00", "data" : {"txId" : "t01-01a1e54bc7b077d79629e3ed0e03cdc1", "externalId" : null, "pipeline" : "quick", "status" : "success", "sequence" : 1, "output" : {"name":"told","booked":1}, "progress" : null, "note" : null, "metadata" : null, "createdAt" : "2027-01-15T08:03:23+00:00", "completedAt" : "2027-01-15T08:03:23+00:00"}}', 'pending', '1', '0', '2027-01-15 08:03:23+00', '2027-01-15 08:03:27.968467+00', 'false', '2027-01-15 08:03:23+00', '2027-01-15 08:03:23+00', NULL, NULL, 'ConnectionRefusedError: [Errno 111] Connect call failed (''127.0.0.1'', 9)'),
  ('msg_t03-01a1e54bc88476d0bac6a43f26e5ca43_1', 't03-01a1e54bc88476d0bac6a43f26e5ca43', '1', 'final', 'local', 'http://127.0.0.1:9/to-be-told', 'http://127.0.0.1:9/to-be-told', '{"type" : "transaction.completed", "timestamp" : "2027-01-15T08:03:23+00:00", "data" : {"txId" : "t03-01a1e54bc88476d0bac6a43f26e5ca43", "externalId" : null, "pipeline" : "quick", "status" : "success", "sequence" : 1, "output" : {"name":"to-be-told","booked":1}, "progress" : null, "note" : null, "metadata" : null, "createdAt" : "2027-01-15T08:03:23+00:00", "completedAt" : "2027-01-15T08:03:23+00:00"}}', 'pending', '0', '0', '2027-01-15 08:03:23+00', '2027-01-15 08:03:23+00', 'false', '2027-01-15 08:03:23+00', NULL, NULL, NULL, NULL);
INSERT INTO webhook_secret ("id", "owner", "secret", "created_at", "retired_at") OVERRIDING SYSTEM VALUE VALUES
  ('1', 'local', 'whsec_' || encode(sha256('upgrade'), 'base64'), '2027-01-15 08:03:23+00', NULL);
INSERT INTO pipeline_version ("name", "version", "content_hash", "definition", "state", "comment", "created_at", "committed_at") OVERRIDING SYSTEM VALUE VALUES
  ('child', 'b1d93ea004bc07ef', 'b1d93ea004bc07efb3cc8861bb5cc6dce645b3a94ca65de3a8cd9518ab40d9d1', '{"pipeline":"child","startable":false,"steps":[{"type":"u/book"},{"type":"u/rest"}]}', 'draft', NULL, '2026-11-16 16:58:25.330395+00', NULL),
  ('quick', 'f1f23d47319c55db', 'f1f23d47319c55db09e545ac224e6d02106e56387914b8f189f44d76ee1530dd', '{"pipeline":"quick","steps":[{"type":"u/book"}]}', 'draft', NULL, '2026-11-16 16:58:25.516269+00', NULL),
  ('hop', '6596e9eef3c7c482', '6596e9eef3c7c4825e59ce2773448d41f3210b8f1f94080b728b5b3b192ded39', '{"pipeline":"hop","steps":[{"type":"u/book"},{"dispatch":"queue","type":"u/book"}]}', 'draft', NULL, '2026-11-16 16:58:25.61291+00', NULL),
  ('rest', 'd18a0552642aa884', 'd18a0552642aa88490ad757d61acf8b90ae147fe7487e9b1aa98e7998e250412', '{"pipeline":"rest","steps":[{"type":"u/book"},{"type":"u/rest"},{"type":"u/book"}]}', 'draft', NULL, '2026-11-16 16:58:25.702502+00', NULL),
  ('wait', 'd2eec50473c6cd7d', 'd2eec50473c6cd7d38970d00612058405b4a82aedcd2ee90cd6a99f7b1894fbb', '{"pipeline":"wait","steps":[{"type":"u/book"},{"type":"u/wait"},{"type":"u/book"}]}', 'draft', NULL, '2026-11-16 16:58:25.815058+00', NULL),
  ('pay', '574791cd60892a1e', '574791cd60892a1e7487cca1a9618b163dde9a9dcf4538dd7697ef7f088b7001', '{"pipeline":"pay","steps":[{"type":"u/book"},{"type":"u/pay"},{"type":"u/book"}]}', 'draft', NULL, '2026-11-16 16:58:25.941647+00', NULL),
  ('ask', '6d8331c745dd3088', '6d8331c745dd30881f4e9cbdd527cf158288de51177072c7798ba23e12176cd0', '{"pipeline":"ask","steps":[{"type":"u/book"},{"type":"u/ask"},{"type":"u/book"}]}', 'draft', NULL, '2026-11-16 16:58:26.021286+00', NULL),
  ('undo', '47b3182c24b86b7a', '47b3182c24b86b7a6efb3720939784375acfe6a311ff453346f9479836a87fb0', '{"pipeline":"undo","steps":[{"type":"u/book"},{"type":"u/book"},{"type":"u/rest"},{"type":"u/fail"}]}', 'draft', NULL, '2026-11-16 16:58:26.10027+00', NULL),
  ('family', '0b2559cd3509fb6c', '0b2559cd3509fb6c79d6901e4334314238a304351235369abf8100fa8f78f53b', '{"pipeline":"family","steps":[{"type":"u/call"},{"type":"u/book"}]}', 'draft', NULL, '2026-11-16 16:58:26.190592+00', NULL),
  ('flaky', '5b9d220ac579de9e', '5b9d220ac579de9e2d23c14586021544d114d3c568316cd13462cd913e995bb5', '{"pipeline":"flaky","steps":[{"type":"u/book"},{"type":"u/flaky"}]}', 'draft', NULL, '2026-11-16 16:58:26.280648+00', NULL);
INSERT INTO upgrade_books ("id", "tx_id", "line") OVERRIDING SYSTEM VALUE VALUES
  ('1', 't02-01a1e54bb4dc770ebfeb127201f73b62', 'book 1'),
  ('2', 't02-01a1e54bb4dc770ebfeb127201f73b62', 'pay'),
  ('3', 't14-01a1e54bbde57198a7cb6772a50e941f', 'book 1'),
  ('4', 't03-01a1e54bbe3f739cb4b34224e9794779', 'book 1'),
  ('5', 't09-01a1e54bbea1774f997d0dd7dc9fcf89', 'book 1'),
  ('6', 't07-01a1e54bbf0d74eb95da5d30fd4f22f7', 'book 1'),
  ('7', 't07-01a1e54bbf0d74eb95da5d30fd4f22f7', 'book 2'),
  ('8', 't12-01a1e54bbf9671598dd4194ccfc5b9ac', 'book 1'),
  ('9', 't02-01a1e54bc00f77beade11349088164a2', 'book 1'),
  ('10', 't08-01a1e54bc0747273938602ae5217b1b8', 'book 1'),
  ('11', 't10-01a1e54bc0bd721f86aec80ae17e555a', 'book 1'),
  ('12', 't06-01a1e54bc389719f9e752eb258850da6', 'book 1'),
  ('13', 't15-01a1e54bc41773b28aab51876f89b5df', 'book 1'),
  ('14', 't12-01a1e54bc463724f98b120135768642c', 'book 1'),
  ('15', 't12-01a1e54bc4d97344a1f1c2945cbedc4c', 'book 1'),
  ('16', 't15-01a1e54bc531740ba9e74dbb8c06ecef', 'book 1'),
  ('17', 't07-01a1e54bc57a704993bde7fc939f0327', 'book 1'),
  ('18', 't07-01a1e54bc57a704993bde7fc939f0327', 'book 2'),
  ('19', 't03-01a1e54bc6047105b38936b5b76e7e73', 'book 1'),
  ('20', 't11-01a1e54bc66d71d5904a0bc916add83b', 'book 1'),
  ('21', 't08-01a1e54bc6bd73fda8ec499d38aa5228', 'book 1'),
  ('22', 't07-01a1e54bc73873e8959ead33310eea7c', 'book 1'),
  ('23', 't01-01a1e54bc7b077d79629e3ed0e03cdc1', 'book 1'),
  ('24', 't03-01a1e54bc88476d0bac6a43f26e5ca43', 'book 1'),
  ('25', 't07-01a1e54bc90370489bf37d63541cd447', 'book 1'),
  ('26', 't08-01a1e54bc94a71799963ee8b9e89dcb8', 'book 1'),
  ('27', 't14-01a1e54bc9cc72d495d19fc7ebf068be', 'book 1'),
  ('28', 't14-01a1e54bc9cc72d495d19fc7ebf068be', 'pay'),
  ('29', 't15-01a1e54bca3d7133b9acafd28e70463f', 'book 1'),
  ('30', 't15-01a1e54bca3d7133b9acafd28e70463f', 'ask'),
  ('31', 't15-01a1e54bcabf751ab699d275182401df', 'book 1');
SELECT setval('operator_action_id_seq', 10);
SELECT setval('tx_state_change_id_seq', 37);
SELECT setval('upgrade_books_id_seq', 31);
SELECT setval('webhook_secret_id_seq', 1);
