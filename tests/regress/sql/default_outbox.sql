-- The outbox of outbox_emit when none is named: the setting, or the only one that the current user owns, or the only one that it
-- may insert into. In a function that runs as another user than its caller, the caller does not decide.
CREATE ROLE regress_service;
CREATE ROLE regress_caller;
CREATE ROLE regress_stranger;
CREATE ROLE regress_emitter;
CREATE SCHEMA service AUTHORIZATION regress_service;
CREATE SCHEMA caller AUTHORIZATION regress_caller;
CREATE SCHEMA stranger AUTHORIZATION regress_stranger;
GRANT USAGE ON SCHEMA service TO regress_caller;

SET ROLE regress_service;
SELECT postbox.create_outbox('service.outbox');
CREATE FUNCTION service.order_placed(id text) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$ SELECT version FROM postbox.outbox_emit('order', id, 'order.placed', '{}'::jsonb) $$;
CREATE FUNCTION service.order_placed_here(id text) RETURNS bigint LANGUAGE sql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp SET postbox.default_outbox = 'service.outbox'
    AS $$ SELECT version FROM postbox.outbox_emit('order', id, 'order.placed', '{}'::jsonb) $$;
CREATE FUNCTION service.order_placed_local(id text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    SET LOCAL postbox.default_outbox = 'service.outbox';
    RETURN (SELECT version FROM postbox.outbox_emit('order', id, 'order.placed', '{}'::jsonb));
END $$;
RESET ROLE;
-- it owns no outbox, and may insert into one
GRANT USAGE ON SCHEMA service, stranger TO regress_emitter, regress_caller;
GRANT CREATE ON SCHEMA stranger TO regress_emitter;
GRANT INSERT ON service.outbox TO regress_emitter;
SET ROLE regress_emitter;
CREATE FUNCTION stranger.order_placed(id text) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$ SELECT version FROM postbox.outbox_emit('order', id, 'order.placed', '{}'::jsonb) $$;
RESET ROLE;

-- The outbox of the caller has a trigger that says who runs it. Everybody may insert.
SET ROLE regress_caller;
SELECT postbox.create_outbox('caller.outbox');
CREATE FUNCTION caller.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE WARNING 'a trigger of the caller runs as %', current_user;
    RETURN NEW;
END $$;
CREATE TRIGGER note BEFORE INSERT ON caller.outbox FOR EACH ROW EXECUTE FUNCTION caller.note();
RESET ROLE;

CREATE VIEW pg_temp.stored AS
    SELECT 'service' AS outbox, aggregate_id, version FROM service.outbox UNION ALL SELECT 'caller', aggregate_id, version FROM caller.outbox;

-- an outbox that somebody else has created is not in the way
SET ROLE regress_service;
SELECT version FROM postbox.outbox_emit('order', 'plain', 'order.placed', '{}'::jsonb);
SET ROLE regress_caller;
SELECT version FROM postbox.outbox_emit('order', 'plain', 'order.placed', '{}'::jsonb);
SELECT service.order_placed('called');
SET ROLE regress_emitter;
SELECT version FROM postbox.outbox_emit('order', 'emitter', 'order.placed', '{}'::jsonb);
SET ROLE regress_caller;
-- nor with a GRANT, for the owner of an outbox; others who may insert into both have to say which. A GRANT or REVOKE counts at once
GRANT USAGE ON SCHEMA caller TO PUBLIC;
GRANT INSERT (aggregate_id) ON caller.outbox TO PUBLIC;
SET ROLE regress_service;
SELECT version FROM postbox.outbox_emit('order', 'plain', 'order.placed', '{}'::jsonb);
SET ROLE regress_emitter;
SELECT version FROM postbox.outbox_emit('order', 'emitter', 'order.placed', '{}'::jsonb);
SET ROLE regress_caller;
REVOKE INSERT (aggregate_id) ON caller.outbox FROM PUBLIC;
SET ROLE regress_emitter;
SELECT version FROM postbox.outbox_emit('order', 'emitter', 'order.placed', '{}'::jsonb);
-- so does membership
RESET ROLE;
GRANT regress_caller TO regress_emitter;
SET ROLE regress_emitter;
SELECT version FROM postbox.outbox_emit('order', 'emitter', 'order.placed', '{}'::jsonb);
RESET ROLE;
REVOKE regress_caller FROM regress_emitter;
SET ROLE regress_emitter;
SELECT version FROM postbox.outbox_emit('order', 'emitter', 'order.placed', '{}'::jsonb);
-- Whoever may create a table may create an outbox and grant INSERT on it, to PUBLIC or by name. Where the emitter's outbox is published,
-- that takes neither the event nor the choice away.
RESET ROLE;
SELECT postbox.create_publication('orders', 'service.outbox', 'projects/shop-1/topics/shop.order.events');
SET ROLE regress_caller;
GRANT INSERT ON caller.outbox TO PUBLIC;
SET ROLE regress_emitter;
SELECT version FROM postbox.outbox_emit('order', 'emitter, PUBLIC granted', 'order.placed', '{}'::jsonb);
SET ROLE regress_caller;
REVOKE INSERT ON caller.outbox FROM PUBLIC;
GRANT INSERT ON caller.outbox TO regress_emitter;
SET ROLE regress_emitter;
SELECT version FROM postbox.outbox_emit('order', 'emitter, granted by name', 'order.placed', '{}'::jsonb);
-- a publication of the other counts at once, and so does the end of one
RESET ROLE;
SELECT postbox.create_publication('others', 'caller.outbox', 'projects/shop-1/topics/shop.order.events');
SET ROLE regress_emitter;
SELECT version FROM postbox.outbox_emit('order', 'emitter', 'order.placed', '{}'::jsonb);
RESET ROLE;
SELECT postbox.drop_publication('others');
SET ROLE regress_emitter;
SELECT version FROM postbox.outbox_emit('order', 'emitter, published', 'order.placed', '{}'::jsonb);
RESET ROLE;
SELECT postbox.drop_publication('orders');
SET ROLE regress_emitter;
SELECT version FROM postbox.outbox_emit('order', 'emitter', 'order.placed', '{}'::jsonb);
RESET ROLE;
SELECT aggregate_id FROM pg_temp.stored WHERE outbox = 'service' AND aggregate_id LIKE 'emitter, %' ORDER BY 1;
SELECT aggregate_id FROM pg_temp.stored WHERE outbox = 'caller' AND aggregate_id LIKE 'emitter, %' ORDER BY 1;
SET ROLE regress_caller;
REVOKE INSERT ON caller.outbox FROM regress_emitter;
RESET ROLE;

-- whoever may insert into none is told so
SET ROLE regress_stranger;
SELECT version FROM postbox.outbox_emit('order', 'plain', 'order.placed', '{}'::jsonb);
RESET ROLE;
SELECT version FROM postbox.outbox_emit('order', 'plain', 'order.placed', '{}'::jsonb);
TABLE pg_temp.stored;

-- The caller sets the default to his own outbox, into which everybody may insert: the function's event does not go there, and the
-- trigger does not run as its owner.
SET ROLE regress_caller;
GRANT INSERT ON caller.outbox TO PUBLIC;
SET postbox.default_outbox = 'caller.outbox';
SELECT version FROM postbox.outbox_emit('order', 'set', 'order.placed', '{}'::jsonb);
SELECT service.order_placed('set');
SELECT stranger.order_placed('set');
SELECT service.order_placed_here('set here');
SELECT service.order_placed_local('set local');
-- nor with SET LOCAL, nor in a function of his own
BEGIN;
SET LOCAL postbox.default_outbox = 'caller.outbox';
SELECT service.order_placed('set');
ROLLBACK;
CREATE FUNCTION caller.calls() RETURNS bigint LANGUAGE sql SET postbox.default_outbox = 'caller.outbox' AS $$ SELECT service.order_placed('wrapped') $$;
SELECT caller.calls();
CREATE FUNCTION caller.calls_the_other() RETURNS bigint LANGUAGE sql SET postbox.default_outbox = 'caller.outbox' AS $$ SELECT stranger.order_placed('wrapped') $$;
SELECT caller.calls_the_other();
CREATE FUNCTION caller.calls_as_definer() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET postbox.default_outbox = 'caller.outbox'
    AS $$ SELECT service.order_placed('wrapped') $$;
SELECT caller.calls_as_definer();
-- in a function of his own it counts
CREATE FUNCTION caller.emits() RETURNS bigint LANGUAGE sql SECURITY DEFINER
    AS $$ SELECT version FROM postbox.outbox_emit('order', 'own', 'order.placed', '{}'::jsonb) $$;
SELECT caller.emits();
RESET ROLE;

-- when the settings of the function are gone, the caller's count again
SET ROLE regress_caller;
SELECT service.order_placed_here('here');
SELECT version FROM postbox.outbox_emit('order', 'set', 'order.placed', '{}'::jsonb);
RESET postbox.default_outbox;
RESET ROLE;
TABLE pg_temp.stored;

-- a handler runs as the owner of the inbox: who applies does not decide
SET ROLE regress_service;
SELECT postbox.create_inbox('service.inbox');
CREATE FUNCTION service.handle(event postbox.event) RETURNS void LANGUAGE sql
    AS $$ SELECT postbox.outbox_emit('order', event.event_id, 'order.seen', '{}'::jsonb) $$;
SELECT postbox.create_handler('service.inbox', '{order.placed}', 'service.handle(postbox.event)');
GRANT INSERT ON service.inbox TO regress_caller;
SET ROLE regress_caller;
REVOKE INSERT ON caller.outbox FROM PUBLIC;
SET postbox.default_outbox = 'caller.outbox';
SELECT postbox.inbox_apply('service.inbox', 'handled', 'order.placed', 'order', 'h', 1, '{}');
RESET postbox.default_outbox;
RESET ROLE;
SELECT * FROM pg_temp.stored WHERE aggregate_id = 'handled';

-- what the database says counts in every function; what a role says does not
GRANT INSERT ON caller.outbox TO PUBLIC;
ALTER ROLE regress_caller LOGIN;
ALTER ROLE regress_caller SET postbox.default_outbox = 'caller.outbox';
\c - regress_caller
SHOW postbox.default_outbox;
SELECT stranger.order_placed('role');
\c - postgres
SELECT format('ALTER DATABASE %I SET postbox.default_outbox = %L', current_database(), 'service.outbox') \gexec
ALTER ROLE regress_caller RESET postbox.default_outbox;
\c - regress_caller
SELECT stranger.order_placed('database');
\c - postgres
SELECT format('ALTER DATABASE %I RESET postbox.default_outbox', current_database()) \gexec
SELECT aggregate_id, version FROM service.outbox WHERE aggregate_id = 'database';

DROP SCHEMA service, caller, stranger CASCADE;
DROP ROLE regress_service, regress_caller, regress_stranger, regress_emitter;
